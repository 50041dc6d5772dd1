package main

import "fmt"

// measure is one row of the table: where its figure stands in fleetbench's lines.
type measure struct {
	title  string
	phase  string
	sent   string // for the phase that is there once per signal: which one
	key    string
	digits int
	target *target
}

func (m measure) where() string {
	if m.sent != "" {
		return fmt.Sprintf("%q of %q (%s)", m.key, m.phase, m.sent)
	}
	return fmt.Sprintf("%q of %q", m.key, m.phase)
}

// target bounds esfleet's own figure or its ratio to the peer's.
type target struct {
	ratio   bool
	atLeast bool // the bound is the least; otherwise the most
	below   bool // and the bound itself does not do
	bound   float64
	unit    string
}

func (t target) String() string {
	what, sign := "", "≤"
	if t == *none {
		return "0"
	}
	if t.ratio {
		what = "ratio "
	}
	if t.atLeast {
		sign = "≥"
	}
	if t.below {
		sign = "<"
	}
	return fmt.Sprintf("%s%s %g%s", what, sign, t.bound, t.unit)
}

var (
	half       = &target{ratio: true, bound: 0.5}
	noMore     = &target{ratio: true, bound: 1}
	noLower    = &target{ratio: true, atLeast: true, bound: 1}
	withinOneS = &target{below: true, bound: 1000, unit: " ms"}
	none       = &target{bound: 0}
)

var measures = []measure{
	{title: "creation, apps/s", phase: "cold-create", key: "apps_per_s", digits: 0, target: noLower},
	{title: "creation until the last status, s", phase: "cold-create", key: "all_status_s", digits: 1},
	{title: "controllers' CPU per app created, ms", phase: "cold-create", key: "controller_cpu_ms_per_app", digits: 2, target: half},
	{title: "API servers' CPU per app created, ms", phase: "cold-create", key: "apiservers_cpu_ms_per_app", digits: 1},
	{title: "API writes per app created", phase: "cold-create", key: "api_writes_per_app", digits: 2, target: noMore},
	{title: "app created → status p50, ms", phase: "cold-create", key: "status_p50_ms", digits: 0},
	{title: "app created → status p99, ms", phase: "cold-create", key: "status_p99_ms", digits: 0},
	{title: "first leader → status p50, ms", phase: "leader-elect", key: "leader_p50_ms", digits: 0},
	{title: "first leader → status p99, ms", phase: "leader-elect", key: "leader_p99_ms", digits: 0, target: withinOneS},
	{title: "leader change → status p50, ms", phase: "leader-change", key: "leader_p50_ms", digits: 0},
	{title: "leader change → status p99, ms", phase: "leader-change", key: "leader_p99_ms", digits: 0, target: withinOneS},
	{title: "leader lost → status p50, ms", phase: "leader-lost", key: "leader_p50_ms", digits: 0},
	{title: "leader lost → status p99, ms", phase: "leader-lost", key: "leader_p99_ms", digits: 0, target: withinOneS},
	{title: "all apps scaled, s", phase: "scale", key: "all_s", digits: 1},
	{title: "API writes per app scaled", phase: "scale", key: "api_writes_per_app", digits: 2},
	{title: "ready pods → status p99, ms", phase: "ready", key: "active_p99_ms", digits: 0},
	{title: "resident memory, leader, idle, MB", phase: "idle", key: "leader_rss_mb", digits: 1, target: half},
	{title: "resident memory, standby, idle, MB", phase: "idle", key: "standby_rss_mb", digits: 1, target: half},
	{title: "idle: CPU of leader, s", phase: "idle", key: "leader_cpu_s", digits: 2},
	{title: "idle: CPU of standby, s", phase: "idle", key: "standby_cpu_s", digits: 2},
	{title: "idle: API requests about what is managed", phase: "idle", key: "api_requests_related", digits: 0},
	{title: "idle: API writes but the Lease's", phase: "idle", key: "api_writes", digits: 0, target: none},
	{title: "idle: API reads (GET, LIST) but the Lease's", phase: "idle", key: "api_reads", digits: 0},
	{title: "idle: ZooKeeper packets/s", phase: "idle", key: "zk_packets_per_s", digits: 2},
	{title: "SIGKILL of the leader → 20 new apps served, s", phase: "failover", sent: "SIGKILL", key: "all_sts_s", digits: 1},
	{title: "SIGTERM of the leader → 20 new apps served, s", phase: "failover", sent: "SIGTERM", key: "all_sts_s", digits: 1},
	{title: "all apps deleted, objects gone, s", phase: "delete", key: "sts_gone_s", digits: 1},
}
