package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// splitTable shows one phase's requests by kind, so that a request more than before is seen at once.
type splitTable struct {
	title, phase, key string
	digits            int
}

var splits = []splitTable{
	{"API writes per app created, by kind", "cold-create", "api_writes_per_app_by_kind", 2},
	{"API writes per app scaled, by kind", "scale", "api_writes_per_app_by_kind", 2},
	{"API requests in the idle phase, by kind (all clients)", "idle", "api_by_verb", 0},
}

func (s splitTable) render(b *strings.Builder, lines []line, runs int) error {
	values := map[string]map[string][]float64{ours: {}, peers: {}}
	kinds := map[string]bool{}
	for product, byKind := range values {
		for n := 1; n <= runs; n++ {
			i := slices.IndexFunc(lines, func(l line) bool { return l.text("product") == product && l.run() == n && l.text("phase") == s.phase })
			var split map[string]any
			if i >= 0 {
				split, _ = lines[i][s.key].(map[string]any)
			}
			if split == nil {
				return fmt.Errorf("%s, run %d: %q of %q is missing", product, n, s.key, s.phase)
			}
			for kind, v := range split {
				kinds[kind] = true
				f, _ := v.(float64)
				byKind[kind] = append(byKind[kind], f)
			}
		}
	}
	fmt.Fprintf(b, "\n%s:\n\n| request | esfleet | peer |\n| --- | --- | --- |\n", s.title)
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		fmt.Fprintf(b, "| %s | %s | %s |\n", kind, spread(filled(values[ours][kind], runs), s.digits), spread(filled(values[peers][kind], runs), s.digits))
	}
	return nil
}

// filled adds a zero for each run in which the kind did not occur.
func filled(v []float64, runs int) []float64 {
	return append(slices.Clone(v), make([]float64, runs-len(v))...)
}
