package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-zookeeper/zk"
)

type m = map[string]any

func appBody(r *rec) m {
	return m{"apiVersion": "es.your.domain/v1alpha1", "kind": "EventSourcedApp", "metadata": m{"name": r.name},
		"spec": m{"replicas": *appReplicas, "image": "registry.local/es-app:v1", "zookeeperConnectString": r.connect, "zookeeperRootPath": r.root}}
}

func (b *bench) createApp(r *rec) error {
	b.set(&r.created)
	return r.k.create(appsPath, appBody(r))
}

func created(r *rec) time.Time { return r.created }
func stsAt(r *rec) time.Time   { return r.stsAt }

// scrape returns all API servers' request counts and CPU seconds.
func (b *bench) scrape() (counts []map[string]float64, cpu float64, err error) {
	for _, k := range b.kubes {
		r, c, err := k.requests()
		if err != nil {
			return nil, 0, err
		}
		counts, cpu = append(counts, r), cpu+c
	}
	return counts, cpu, nil
}

// requestsBetween sums what was requested between two scrapes.
func requestsBetween(before, after []map[string]float64) map[string]float64 {
	out := map[string]float64{}
	for i := range after {
		for k, v := range after[i] {
			if d := v - before[i][k]; d > 0 {
				out[k] += d
			}
		}
	}
	return out
}

var writeVerbs = []string{"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"}

// split takes "VERB resource[/sub] [code]" apart, without the code.
func split(request string) (verb, resource string) {
	f := strings.Fields(request)
	return f[0], f[1]
}

// othersWrites keeps the writes, refused ones too, that are not Leases nor the driver's own
// (own successful requests of the one kind that the driver made).
func othersWrites(requests map[string]float64, ownKind string, own int64) (byKind map[string]float64, total float64) {
	byKind = map[string]float64{}
	for k, v := range requests {
		verb, resource := split(k)
		if k == ownKind {
			v -= float64(own)
		}
		if slices.Contains(writeVerbs, verb) && resource != "leases" && v != 0 {
			byKind[k] = v
			total += v
		}
	}
	return byKind, total
}

// perApp reports writes as a sum, by kind, and both per app.
func perApp(kv m, byKind map[string]float64, total float64, apps int) {
	each := map[string]float64{}
	for k, v := range byKind {
		each[k] = round(v / float64(apps))
	}
	kv["api_writes"], kv["api_writes_per_app_by_kind"], kv["api_writes_per_app"] = byKind, each, round(total/float64(apps))
}

// start tells under which conditions the run began.
func (b *bench) start() error {
	b.report("start", m{"time": time.Now().UTC().Format(time.RFC3339), "load1": load1()})
	return nil
}

func (b *bench) sent() (n int64) {
	for _, k := range b.kubes {
		n += k.writes.Load()
	}
	return n
}

func (b *bench) coldCreate() error {
	before, api0, err := b.scrape()
	if err != nil {
		return err
	}
	b.begin()
	own := b.sent()
	start := time.Now()
	if err := b.parallel(b.apps, b.createApp); err != nil {
		return err
	}
	kv := m{"driver_create_s": round(time.Since(start).Seconds())}
	kv["missing"] = b.wait(b.apps, func(r *rec) bool { return !r.stsAt.IsZero() && !r.rootAt.IsZero() && !r.statAt.IsZero() })
	sts := b.latencies(kv, "sts", b.apps, created, stsAt)
	root := b.latencies(kv, "root", b.apps, created, func(r *rec) time.Time { return r.rootAt })
	stat := b.latencies(kv, "status", b.apps, created, func(r *rec) time.Time { return r.statAt })
	if root.After(sts) {
		sts = root
	}
	kv["all_sts_root_s"], kv["all_status_s"] = round(sts.Sub(start).Seconds()), round(stat.Sub(start).Seconds())
	kv["apps_per_s"] = round(float64(len(b.apps)) / sts.Sub(start).Seconds())
	time.Sleep(*pause)
	cpu, _ := b.cpuSincePhase()
	after, api1, err := b.scrape()
	if err != nil {
		return err
	}
	writes, total := othersWrites(requestsBetween(before, after), "POST eventsourcedapps", b.sent()-own)
	n := float64(len(b.apps))
	kv["controller_cpu_ms_per_app"], kv["apiservers_cpu_ms_per_app"] = round(1000*cpu/n), round(1000*(api1-api0)/n)
	perApp(kv, writes, total, len(b.apps))
	b.report("cold-create", kv)
	if kv["missing"] == len(b.apps) {
		return errors.New("cold-create: no app was served")
	}
	return nil
}

func (b *bench) sampled() []*rec {
	n := min(*sample, len(b.apps))
	out := make([]*rec, n)
	for i, j := range rand.Perm(len(b.apps))[:n] {
		out[i] = b.apps[j]
	}
	return out
}

func (b *bench) leaderChange() error {
	time.Sleep(2 * time.Second)
	rs := b.sampled()
	set := func(phase, suffix string) error {
		want := func(r *rec) string {
			if suffix == "" {
				return ""
			}
			return r.name + suffix
		}
		b.begin()
		var wg sync.WaitGroup
		errs := make(chan error, len(rs))
		for _, r := range rs {
			wg.Go(func() { // spread, so as not to lock on to a poller's phase
				time.Sleep(rand.N(*spread))
				p := r.root + "/leader"
				err := r.zc.Delete(p, -1)
				if b.set(&r.leaderSet); suffix != "" {
					_, err = r.zc.Create(p, []byte(want(r)), zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
				}
				if err != nil && err != zk.ErrNoNode {
					errs <- fmt.Errorf("%s: %w", p, err)
				}
			})
		}
		wg.Wait()
		if len(errs) > 0 {
			return <-errs
		}
		kv := m{"missing": b.wait(rs, func(r *rec) bool { return r.leader == want(r) && r.leaderAt.After(r.leaderSet) })}
		b.latencies(kv, "leader", rs, func(r *rec) time.Time { return r.leaderSet }, func(r *rec) time.Time { return r.leaderAt })
		b.report(phase, kv)
		return nil
	}
	if err := set("leader-elect", "-0"); err != nil {
		return err
	}
	if err := set("leader-change", "-1"); err != nil {
		return err
	}
	return set("leader-lost", "")
}

func (b *bench) scale() error {
	before, _, err := b.scrape()
	if err != nil {
		return err
	}
	own := b.sent()
	b.begin()
	start := time.Now()
	if err := b.parallel(b.apps, func(r *rec) error {
		b.set(&r.replicaSet)
		return r.k.merge(appsPath+"/"+r.name, m{"spec": m{"replicas": *appReplicas + 2}})
	}); err != nil {
		return err
	}
	kv := m{"driver_patch_s": round(time.Since(start).Seconds())}
	kv["missing"] = b.wait(b.apps, func(r *rec) bool { return r.stsReplicas == *appReplicas+2 })
	last := b.latencies(kv, "scale", b.apps, func(r *rec) time.Time { return r.replicaSet }, func(r *rec) time.Time { return r.stsReplAt })
	kv["all_s"] = round(last.Sub(start).Seconds())
	kv["apps_per_s"] = round(float64(len(b.apps)) / last.Sub(start).Seconds())
	time.Sleep(*pause)
	after, _, err := b.scrape()
	if err != nil {
		return err
	}
	writes, total := othersWrites(requestsBetween(before, after), "PATCH eventsourcedapps", b.sent()-own)
	perApp(kv, writes, total, len(b.apps))
	b.report("scale", kv)
	return nil
}

// ready plays the StatefulSet controller: all pods but one are ready, on a sample.
func (b *bench) ready() error {
	rs, active := b.sampled(), *appReplicas+1
	if err := b.parallel(rs, func(r *rec) error {
		b.set(&r.readySet)
		return r.k.merge(stsPath+"/"+r.name+"/status", m{"status": m{"replicas": active + 1, "readyReplicas": active}})
	}); err != nil {
		return err
	}
	kv := m{"missing": b.wait(rs, func(r *rec) bool { return r.active == active })}
	b.latencies(kv, "active", rs, func(r *rec) time.Time { return r.readySet }, func(r *rec) time.Time { return r.activeAt })
	b.report("ready", kv)
	return nil
}

func (b *bench) ownSessions() map[int64]bool {
	out := map[int64]bool{}
	for _, z := range b.zks {
		out[z.SessionID()] = true
	}
	return out
}

func (b *bench) zkAddrs() (out []string) {
	for _, z := range b.zks {
		out = append(out, z.Server())
	}
	return out
}

func (b *bench) idlePhase() error {
	time.Sleep(*settle)
	b.begin()
	z0 := mntr(b.zkAddrs())
	_, own0 := sessions(b.zkAddrs(), b.ownSessions())
	before, api0, err := b.scrape()
	if err != nil {
		return err
	}
	start := time.Now()
	time.Sleep(*idle)
	secs := time.Since(start).Seconds()
	after, api1, err := b.scrape()
	if err != nil {
		return err
	}
	z1 := mntr(b.zkAddrs())
	others, own1 := sessions(b.zkAddrs(), b.ownSessions())
	byVerb, total, related := requestsBetween(before, after), 0.0, 0.0
	leases, reads := 0.0, 0.0
	for k, v := range byVerb {
		total += v
		verb, resource := split(k)
		switch {
		case slices.Contains(writeVerbs, verb) && resource == "leases":
			leases += v
		case (verb == "GET" || verb == "LIST") && resource != "leases":
			reads += v
		}
		if slices.Contains([]string{"eventsourcedapps", "eventsourcedapps/status", "statefulsets",
			"services", "poddisruptionbudgets", "events", "leases"}, resource) {
			related += v
		}
	}
	_, writes := othersWrites(byVerb, "", 0)
	packets := z1["packets_received"] - z0["packets_received"] - float64(own1-own0)
	kv := m{"seconds": round(secs), "api_requests": total, "api_requests_related": related, "api_by_verb": byVerb,
		"api_writes": writes, "api_lease_writes": leases, "api_reads": reads,
		"apiservers_cpu_s": round(api1 - api0),
		"zk_packets":       packets, "zk_packets_per_s": round(packets / secs),
		"zk_new_conns": z1["connection_request_count"] - z0["connection_request_count"],
		"zk_sessions":  len(others), "zk_watches": z1["watch_count"]}
	leader := b.leader()
	for i, p := range b.pids {
		u := readUsage(p)
		role := "standby"
		if i == leader {
			role = "leader"
		}
		kv[role+"_rss_mb"], kv[role+"_cpu_s"] = round(u.rssMB), round(u.cpu-b.cpu0[p])
		kv[fmt.Sprintf("replica%d", i)] = m{"cpu_s": round(u.cpu - b.cpu0[p]), "rss_mb": round(u.rssMB), "pss_mb": round(u.pssMB),
			"peak_rss_mb": round(u.peakMB), "threads": u.threads, "fds": u.fds}
	}
	b.report("idle", kv)
	return nil
}

// failoverPhase kills the replica that used most CPU lately (the leader of an
// active-passive product), creates apps at once and times them; first SIGKILL, then SIGTERM.
func (b *bench) failoverPhase() error {
	if !*failover {
		return nil
	}
	if len(b.pids) < 2 {
		return errors.New("failover: needs two replicas")
	}
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		b.begin()
		for _, r := range b.sampled() { // make work, so that the leader shows
			if err := r.k.merge(appsPath+"/"+r.name, m{"spec": m{"image": "registry.local/es-app:" + sig.String()[:1]}}); err != nil {
				return err
			}
		}
		time.Sleep(4 * time.Second)
		_, victim := b.cpuSincePhase()
		if victim == 0 {
			return errors.New("failover: no replica alive")
		}
		if err := b.end(victim, sig); err != nil {
			return err
		}
		killed := time.Now()
		var rs []*rec
		for i := range 20 {
			rs = append(rs, b.addApp(b.kubes[i%len(b.kubes)], fmt.Sprintf("fo-%d-%d", sig, i)))
		}
		if err := b.parallel(rs, b.createApp); err != nil {
			return err
		}
		kv := m{"signal": sig.String(), "missing": b.wait(rs, func(r *rec) bool { return !r.stsAt.IsZero() && !r.statAt.IsZero() })}
		last := b.latencies(kv, "sts", rs, func(*rec) time.Time { return killed }, stsAt)
		kv["all_sts_s"] = round(last.Sub(killed).Seconds())
		for alive(victim) && time.Since(killed) < *timeout {
			time.Sleep(20 * time.Millisecond)
		}
		if kv["victim_exited"] = !alive(victim); alive(victim) {
			b.faults = append(b.faults, fmt.Sprintf("failover: the replica outlived %s", sig))
		}
		kv["sent"] = map[syscall.Signal]string{syscall.SIGKILL: "SIGKILL", syscall.SIGTERM: "SIGTERM"}[sig]
		b.report("failover", kv)
		if *spawnCmd != "" {
			if err := b.addReplica(); err != nil {
				return err
			}
			time.Sleep(6 * time.Second)
		}
	}
	return nil
}

func (b *bench) deleteAll() error {
	start := time.Now()
	if err := b.parallel(b.apps, func(r *rec) error {
		_, err := r.k.do("DELETE", appsPath+"/"+r.name, "", nil)
		return err
	}); err != nil {
		return err
	}
	kv := m{"driver_delete_s": round(time.Since(start).Seconds())}
	kv["crs_left"] = b.wait(b.apps, func(r *rec) bool { return !r.crGone.IsZero() })
	kv["sts_left"] = b.wait(b.apps, func(r *rec) bool { return !r.stsGone.IsZero() })
	at0 := func(*rec) time.Time { return start }
	cr := b.latencies(m{}, "", b.apps, at0, func(r *rec) time.Time { return r.crGone })
	sts := b.latencies(m{}, "", b.apps, at0, func(r *rec) time.Time { return r.stsGone })
	kv["crs_gone_s"], kv["sts_gone_s"] = round(cr.Sub(start).Seconds()), round(sts.Sub(start).Seconds())
	time.Sleep(2 * time.Second)
	roots := 0
	for _, k := range b.kubes {
		for _, z := range b.zks {
			names, _, _ := z.Children(fmt.Sprintf("/fleet/c%d", k.idx))
			roots += len(names)
		}
	}
	kv["roots_left"] = roots
	b.report("delete", kv)
	return nil
}
