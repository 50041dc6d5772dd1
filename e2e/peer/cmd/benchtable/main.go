// Command benchtable reads fleetbench's lines of several runs of esfleet and of the peer, checks that nothing is
// missing, and prints a Markdown page: medians, spread, ratios, and which targets are met.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// line is one phase of one run, as fleetbench printed it.
type line map[string]any

func (l line) text(key string) string { s, _ := l[key].(string); return s }

func (l line) run() int { n, _ := l["run"].(float64); return int(n) }

const (
	ours  = "esfleet"
	peers = "peer"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: benchtable RAW.jsonl")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "benchtable:", err)
		os.Exit(1)
	}
}

func run(path string, out io.Writer) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	lines, err := read(f)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	page, err := render(lines)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	_, err = io.WriteString(out, page)
	return err
}

func read(r io.Reader) (lines []line, err error) {
	s := bufio.NewScanner(r)
	s.Buffer(nil, 1<<20)
	for n := 1; s.Scan(); n++ {
		var l line
		if err := json.Unmarshal(s.Bytes(), &l); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		lines = append(lines, l)
	}
	return lines, s.Err()
}

// find returns the values of a measure over the runs of a product, in the order of the runs.
func find(lines []line, product string, runs int, m measure) (values []float64, err error) {
	for n := 1; n <= runs; n++ {
		var found []float64
		for _, l := range lines {
			if l.text("product") == product && l.run() == n && l.text("phase") == m.phase && (m.sent == "" || l.text("sent") == m.sent) {
				if v, ok := l[m.key].(float64); ok {
					found = append(found, v)
				}
			}
		}
		if len(found) != 1 {
			return nil, fmt.Errorf("%s, run %d: %s is there %d times, not once", product, n, m.where(), len(found))
		}
		values = append(values, found[0])
	}
	return values, nil
}

// row is a measure with what the runs gave.
type row struct {
	measure
	ours, peers, ratios []float64
}

func rowsOf(lines []line, runs int) (rows []row, err error) {
	var faults []error
	for _, m := range measures {
		a, errA := find(lines, ours, runs, m)
		b, errB := find(lines, peers, runs, m)
		if errA != nil || errB != nil {
			faults = append(faults, errA, errB)
			continue
		}
		r := row{measure: m, ours: a, peers: b}
		for i := range a {
			if b[i] != 0 {
				r.ratios = append(r.ratios, a[i]/b[i])
			}
		}
		rows = append(rows, r)
	}
	return rows, errors.Join(faults...)
}

// verdict says whether the row reaches its target: by the median, and whether each run does.
func (r row) verdict() string {
	t := r.target
	values := r.ours
	if t.ratio {
		values = r.ratios
	}
	if len(values) < len(r.ours) {
		return "cannot be told (the peer's figure is 0)"
	}
	reached := func(v float64) bool {
		if t.atLeast {
			return v >= t.bound
		}
		if t.below {
			return v < t.bound
		}
		return v <= t.bound
	}
	switch {
	case !reached(median(values)):
		return "**not met**"
	case slices.ContainsFunc(values, func(v float64) bool { return !reached(v) }):
		return "met, but not in each run"
	default:
		return "met"
	}
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// spread writes a median and, where there are several different values, the lowest and the highest.
func spread(v []float64, digits int) string {
	if len(v) == 0 {
		return "–"
	}
	f := func(x float64) string { return fmt.Sprintf("%.*f", digits, x) }
	low, high := f(slices.Min(v)), f(slices.Max(v))
	if low == high {
		return low
	}
	return fmt.Sprintf("%s (%s–%s)", f(median(v)), low, high)
}

func render(lines []line) (string, error) {
	var head line
	for _, l := range lines {
		if l.text("phase") == "bench" {
			head = l
		}
	}
	runs, _ := head["runs"].(float64)
	if runs < 1 {
		return "", errors.New("the line that says how many runs there are is missing")
	}
	rows, err := rowsOf(lines, int(runs))
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprint(&b, "<!-- Written by e2e/peer/bench (`make bench`): do not edit. -->\n# esfleet beside the Go peer\n\n")
	conditions(&b, head, lines)
	b.WriteString("\n| measure | esfleet | peer | esfleet / peer | target | |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, r := range rows {
		goal, verdict := "", ""
		if r.target != nil {
			goal, verdict = r.target.String(), r.verdict()
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", r.title, spread(r.ours, r.digits), spread(r.peers, r.digits), spread(r.ratios, 2), goal, verdict)
	}
	for _, s := range splits {
		if err := s.render(&b, lines, int(runs)); err != nil {
			return "", err
		}
	}
	return b.String(), nil
}

// conditions says what was run, on what, and how busy the machine was.
func conditions(b *strings.Builder, head line, lines []line) {
	var loads []float64
	for _, l := range lines {
		if v, ok := l["load1"].(float64); ok && l.text("phase") == "start" {
			loads = append(loads, v)
		}
	}
	fmt.Fprintf(b, "%v members × %v apps, two replicas of each product, %v alternating runs of each (esfleet, peer, esfleet, …) in one go on %s: fresh\n"+
		"control planes (etcd, API server, garbage collector; no kubelet), fresh ZooKeeper and fresh state in each run. %v cores (%s), Linux %s;\n"+
		"the same cores carry the API servers, ZooKeeper and the driver. Load average when the runs began: %s.\n"+
		"esfleet: %s. Kubernetes %s, ZooKeeper %s, %s.\n\n",
		head["members"], head["apps_per_member"], head["runs"], head.text("date"), head["cpus"], head.text("cpu_model"), head.text("kernel"),
		spread(loads, 1), head.text("esfleet_version"), head.text("kubernetes_version"), head.text("zookeeper_version"), head.text("go_version"))
	b.WriteString("Each figure is the median of the runs, with the lowest and the highest in brackets; a ratio is taken between the runs of one\n" +
		"pair. A target is met if the median meets it. What the runs printed is in [raw.jsonl](raw.jsonl).\n")
}
