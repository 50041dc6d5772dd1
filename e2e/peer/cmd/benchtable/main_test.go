package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// raw makes the lines of complete runs: each figure of a product is the same in each run but for what set changes.
func raw(runs int, figure map[string]float64, set func(l line)) (lines []line) {
	lines = append(lines, line{"phase": "bench", "runs": float64(runs), "members": 2.0, "apps_per_member": 200.0, "cpus": 2.0})
	for product, value := range figure {
		for n := 1; n <= runs; n++ {
			byPhase := map[string]line{}
			for _, m := range measures {
				l := byPhase[m.phase+m.sent]
				if l == nil {
					l = line{"phase": m.phase, "sent": m.sent, "product": product, "run": float64(n)}
					byPhase[m.phase+m.sent] = l
				}
				l[m.key] = value
			}
			for _, s := range splits {
				byPhase[s.phase][s.key] = map[string]any{"APPLY services": value}
			}
			for _, l := range byPhase {
				if set != nil {
					set(l)
				}
				lines = append(lines, l)
			}
		}
	}
	return lines
}

func rowNamed(t *testing.T, lines []line, runs int, title string) row {
	t.Helper()
	rows, err := rowsOf(lines, runs)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(rows, func(r row) bool { return r.title == title })
	if i < 0 {
		t.Fatalf("no row %q", title)
	}
	return rows[i]
}

func TestAFigureMissingInOneRunIsNamed(t *testing.T) {
	lines := raw(3, map[string]float64{ours: 1, peers: 2}, func(l line) {
		if l.text("product") == peers && l.run() == 2 && l.text("phase") == "delete" {
			delete(l, "sts_gone_s")
		}
	})
	_, err := render(lines)
	want := `peer, run 2: "sts_gone_s" of "delete" is there 0 times, not once`
	if err == nil || err.Error() != want {
		t.Fatalf("got %v, want %s", err, want)
	}
}

func TestAPhaseReportedTwiceIsNamed(t *testing.T) {
	lines := raw(1, map[string]float64{ours: 1, peers: 2}, nil)
	again := lines[slices.IndexFunc(lines, func(l line) bool { return l.text("product") == ours && l.text("phase") == "ready" })]
	_, err := render(append(lines, again))
	want := `esfleet, run 1: "active_p99_ms" of "ready" is there 2 times, not once`
	if err == nil || err.Error() != want {
		t.Fatalf("got %v, want %s", err, want)
	}
}

func TestATargetIsJudgedByTheMedianAndSaysWhenARunMissesIt(t *testing.T) {
	const title = "leader change → status p99, ms"
	for want, p99 := range map[string][3]float64{
		"met":                      {10, 999, 20},
		"met, but not in each run": {10, 1000, 20},
		"**not met**":              {1000, 10, 1200},
	} {
		lines := raw(3, map[string]float64{ours: 1, peers: 2}, func(l line) {
			if l.text("product") == ours && l.text("phase") == "leader-change" {
				l["leader_p99_ms"] = p99[l.run()-1]
			}
		})
		if got := rowNamed(t, lines, 3, title).verdict(); got != want {
			t.Errorf("%v: %s, want %s", p99, got, want)
		}
	}
}

func TestRatiosAreTakenBetweenTheRunsOfOnePair(t *testing.T) {
	cpu := map[string][]float64{ours: {1, 2, 3}, peers: {2, 8, 4}}
	lines := raw(3, map[string]float64{ours: 1, peers: 1}, func(l line) {
		if l.text("phase") == "cold-create" {
			l["controller_cpu_ms_per_app"] = cpu[l.text("product")][l.run()-1]
		}
	})
	r := rowNamed(t, lines, 3, "controllers' CPU per app created, ms")
	if got, want := fmt.Sprintf("%v %s", r.ratios, r.verdict()), "[0.5 0.25 0.75] met, but not in each run"; got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
}

func TestThroughputMustBeNoLower(t *testing.T) {
	lines := raw(1, map[string]float64{ours: 1, peers: 1.01}, nil)
	if got := rowNamed(t, lines, 1, "creation, apps/s").verdict(); got != "**not met**" {
		t.Fatalf("got %s", got)
	}
}

func TestAKindOfRequestThatOnlyOneProductMakesHasARow(t *testing.T) {
	lines := raw(2, map[string]float64{ours: 1, peers: 1}, func(l line) {
		if l.text("product") == ours && l.text("phase") == "cold-create" && l.run() == 2 {
			l["api_writes_per_app_by_kind"].(map[string]any)["APPLY services 409"] = 0.5
		}
	})
	page, err := render(lines)
	if err != nil {
		t.Fatal(err)
	}
	if want := "| APPLY services 409 | 0.25 (0.00–0.50) | 0.00 |\n"; !strings.Contains(page, want) {
		t.Fatalf("no %q in:\n%s", want, page)
	}
}
