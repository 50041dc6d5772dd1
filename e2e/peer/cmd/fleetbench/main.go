// Command fleetbench measures any EventSourcedApp fleet controller from the outside:
// API servers, ZooKeeper and /proc. It prints one JSON line per phase.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-zookeeper/zk"
)

var (
	kubeconfigs = flag.String("kubeconfigs", "", "comma-separated member kubeconfigs")
	zkFlag      = flag.String("zk", "127.0.0.1:2281", "ZooKeeper connect strings, ';' between ensembles; apps are spread over them")
	perCluster  = flag.Int("apps", 100, "apps per cluster")
	appReplicas = flag.Int("replicas-per-app", 3, "spec.replicas of a new app; the scale phase adds 2")
	sample      = flag.Int("sample", 100, "apps sampled for leader and readiness changes")
	pidsFlag    = flag.String("pids", "", "pids of already running controller replicas")
	spawnCmd    = flag.String("spawn", "", "shell command that starts one controller replica (instead of -pids)")
	replicas    = flag.Int("replicas", 2, "replicas to spawn")
	logDir      = flag.String("logs", ".", "folder for spawned replicas' output")
	writers     = flag.Int("writers", 8, "concurrent writers per cluster")
	spread      = flag.Duration("spread", 10*time.Second, "window over which leader writes are spread")
	idle        = flag.Duration("idle", time.Minute, "idle window")
	settle      = flag.Duration("settle", 8*time.Second, "pause before the idle window")
	timeout     = flag.Duration("timeout", 2*time.Minute, "limit per phase")
	failover    = flag.Bool("failover", true, "kill the busiest replica and time its replacement (it is an error if there are not two)")
	pause       = flag.Duration("pause", 3*time.Second, "pause before the writes and CPU of creation and scaling are counted, for Events and the like to follow")
	product     = flag.String("product", "", "what is measured; copied into every line")
	runNumber   = flag.Int("run", 1, "which run of several this is; copied into every line")
)

// rec is what the driver knows of one app. Zero times mean "not seen".
type rec struct {
	k                               *kube
	name, root, connect             string
	zc                              *zk.Conn
	created, stsAt, rootAt, statAt  time.Time
	crGone, stsGone                 time.Time
	leader                          string
	stsReplicas, active             int
	leaderAt, stsReplAt, activeAt   time.Time
	leaderSet, replicaSet, readySet time.Time
}

type bench struct {
	mu       sync.Mutex
	kubes    []*kube
	apps     []*rec
	byName   []map[string]*rec // per cluster
	connects []string
	zks      []*zk.Conn
	pids     []int
	spawned  map[int]*process
	cpu0     map[int]float64 // at phase start
	reported map[string]int  // lines per phase
	faults   []string        // what was missing
}

// The main goroutine stays on the main thread: it starts the replicas, and what ends them with the driver
// (the parent-death signal) fires when the thread that started them ends.
func init() { runtime.LockOSThread() }

func main() {
	flag.Parse()
	interrupt := make(chan os.Signal, 1)
	signal.Notify(interrupt, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-interrupt
		os.Exit(130) // the replicas go with us
	}()
	b := &bench{reported: map[string]int{}, spawned: map[int]*process{}}
	err := b.run()
	b.stopReplicas()
	b.missingPhases()
	if len(b.faults) > 0 {
		err = errors.Join(err, errors.New(strings.Join(b.faults, "; ")))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "fleetbench:", err)
		os.Exit(1)
	}
}

func (b *bench) run() error {
	for i, p := range strings.Split(*kubeconfigs, ",") {
		k, err := newKube(i, p)
		if err != nil {
			return err
		}
		b.kubes = append(b.kubes, k)
		b.byName = append(b.byName, map[string]*rec{})
		var he *httpError
		err = k.create("/api/v1/namespaces", map[string]any{"metadata": map[string]any{"name": ns}})
		if err != nil && !(asHTTP(err, &he) && he.code == 409) {
			return err
		}
	}
	b.connects = strings.Split(*zkFlag, ";")
	for _, c := range b.connects {
		z, ev, err := zk.Connect(strings.Split(c, ","), 10*time.Second, zk.WithLogInfo(false))
		if err != nil {
			return err
		}
		defer z.Close()
		go func() {
			for range ev {
			}
		}()
		b.zks = append(b.zks, z)
	}
	if *spawnCmd != "" {
		for range *replicas {
			if err := b.addReplica(); err != nil {
				return err
			}
			time.Sleep(3 * time.Second)
		}
	}
	for _, s := range strings.FieldsFunc(*pidsFlag, func(r rune) bool { return r == ',' }) {
		pid, err := strconv.Atoi(s)
		if err != nil {
			return err
		}
		b.pids = append(b.pids, pid)
	}
	for i := range *perCluster {
		for _, k := range b.kubes {
			b.addApp(k, fmt.Sprintf("app-%d", i))
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, k := range b.kubes {
		go k.watch(ctx, appsPath, func(t string, o *object, at time.Time) { b.onApp(k, t, o, at) })
		go k.watch(ctx, stsPath, func(t string, o *object, at time.Time) { b.onSts(k, t, o, at) })
	}
	go b.pollRoots(ctx)
	time.Sleep(3 * time.Second)

	for _, phase := range []func() error{b.start, b.coldCreate, b.leaderChange, b.scale, b.ready, b.idlePhase, b.failoverPhase, b.deleteAll} {
		b.begin()
		if err := phase(); err != nil {
			return err
		}
		if b.crashed() {
			return errors.New("a replica ended by itself")
		}
	}
	return nil
}

// missingPhases notes every phase that was not reported as often as it should be.
func (b *bench) missingPhases() {
	want := map[string]int{"start": 1, "cold-create": 1, "leader-elect": 1, "leader-change": 1, "leader-lost": 1, "scale": 1, "ready": 1, "idle": 1, "delete": 1}
	if *failover {
		want["failover"] = 2
	}
	for _, phase := range slices.Sorted(maps.Keys(want)) {
		if n := want[phase]; b.reported[phase] != n {
			b.faults = append(b.faults, fmt.Sprintf("%s reported %d times, not %d", phase, b.reported[phase], n))
		}
	}
}

func (b *bench) addReplica() error {
	p, err := spawn(*spawnCmd, fmt.Sprintf("%s/controller-%d.log", *logDir, len(b.pids)))
	if err != nil {
		return err
	}
	b.pids = append(b.pids, p.pid)
	b.spawned[p.pid] = p
	return nil
}

// crashed tells whether a replica that nobody asked to end has ended.
func (b *bench) crashed() bool {
	for _, p := range b.spawned {
		if p.asked == 0 && p.ended() {
			return true
		}
	}
	return false
}

// end sends the signal to a replica, whose end is from then on no fault.
func (b *bench) end(pid int, sig syscall.Signal) error {
	if p := b.spawned[pid]; p != nil {
		p.asked = sig
	}
	return syscall.Kill(pid, sig)
}

// stopReplicas ends what was spawned and notes every replica that did not end as asked.
func (b *bench) stopReplicas() {
	for _, pid := range b.pids {
		if p := b.spawned[pid]; p != nil && p.asked == 0 && !p.ended() {
			b.end(pid, syscall.SIGTERM)
		}
	}
	limit := time.After(20 * time.Second)
	for i, pid := range b.pids {
		p := b.spawned[pid]
		if p == nil {
			continue
		}
		select {
		case <-p.exited:
		case <-limit:
			limit = time.After(0)
			b.faults = append(b.faults, fmt.Sprintf("replica %d ignored SIGTERM for 20 s", i))
			syscall.Kill(pid, syscall.SIGKILL)
			<-p.exited
			continue
		}
		if p.asked != syscall.SIGKILL && (p.asked == 0 || p.code != 0) {
			b.faults = append(b.faults, fmt.Sprintf("replica %d ended with status %d (signal sent: %d)", i, p.code, p.asked))
		}
	}
}

func (b *bench) addApp(k *kube, name string) *rec {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := len(b.apps) % len(b.connects)
	r := &rec{k: k, name: name, root: fmt.Sprintf("/fleet/c%d/%s", k.idx, name), connect: b.connects[e], zc: b.zks[e], active: -1}
	b.apps = append(b.apps, r)
	b.byName[k.idx][name] = r
	return r
}

func (b *bench) onApp(k *kube, t string, o *object, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.byName[k.idx][o.Metadata.Name]
	if r == nil {
		return
	}
	if t == "DELETED" {
		r.crGone = at
		return
	}
	if r.statAt.IsZero() && (o.Status.ActiveReplicas != nil || len(o.Status.Conditions) > 0) {
		r.statAt = at
	}
	if o.Status.Leader != r.leader {
		r.leader, r.leaderAt = o.Status.Leader, at
	}
	if a := o.Status.ActiveReplicas; a != nil && *a != r.active {
		r.active, r.activeAt = *a, at
	}
}

func (b *bench) onSts(k *kube, t string, o *object, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.byName[k.idx][o.Metadata.Name]
	if r == nil {
		return
	}
	if t == "DELETED" {
		r.stsGone = at
		return
	}
	if r.stsAt.IsZero() {
		r.stsAt = at
	}
	if o.Spec.Replicas != r.stsReplicas {
		r.stsReplicas, r.stsReplAt = o.Spec.Replicas, at
	}
}

// pollRoots notes root znodes by listing each cluster's parent every 50 ms while some are missing.
func (b *bench) pollRoots(ctx context.Context) {
	for ; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
		for _, k := range b.kubes {
			if b.count(func(r *rec) bool { return r.k == k && !r.created.IsZero() && r.rootAt.IsZero() }) == 0 {
				continue
			}
			for _, z := range b.zks {
				names, _, err := z.Children(fmt.Sprintf("/fleet/c%d", k.idx))
				if err != nil {
					continue
				}
				now := time.Now()
				b.mu.Lock()
				for _, n := range names {
					if r := b.byName[k.idx][n]; r != nil && r.zc == z && r.rootAt.IsZero() {
						r.rootAt = now
					}
				}
				b.mu.Unlock()
			}
		}
	}
}

func (b *bench) count(f func(*rec) bool) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.apps {
		if f(r) {
			n++
		}
	}
	return n
}

// wait blocks until ok holds for all of rs and returns how many it never held for.
func (b *bench) wait(rs []*rec, ok func(*rec) bool) int {
	end := time.Now().Add(*timeout)
	for {
		missing := 0
		b.mu.Lock()
		for _, r := range rs {
			if !ok(r) {
				missing++
			}
		}
		b.mu.Unlock()
		if missing == 0 || time.Now().After(end) || b.crashed() {
			return missing
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// parallel runs fn over rs with -writers goroutines per cluster and returns the first error.
func (b *bench) parallel(rs []*rec, fn func(*rec) error) error {
	var wg sync.WaitGroup
	var once sync.Once
	var first error
	for _, k := range b.kubes {
		ch := make(chan *rec, len(rs))
		for _, r := range rs {
			if r.k == k {
				ch <- r
			}
		}
		close(ch)
		for range *writers {
			wg.Go(func() {
				for r := range ch {
					if err := fn(r); err != nil {
						once.Do(func() { first = err })
					}
				}
			})
		}
	}
	wg.Wait()
	return first
}

func (b *bench) set(t *time.Time) time.Time {
	now := time.Now()
	b.mu.Lock()
	*t = now
	b.mu.Unlock()
	return now
}

func (b *bench) begin() {
	b.cpu0 = map[int]float64{}
	for _, p := range b.pids {
		b.cpu0[p] = readUsage(p).cpu
	}
}

func (b *bench) cpuSincePhase() (total float64, busiest int) {
	top := -1.0
	for _, p := range b.pids {
		if !alive(p) {
			continue
		}
		d := readUsage(p).cpu - b.cpu0[p]
		if total += d; d > top {
			top, busiest = d, p
		}
	}
	return total, busiest
}

// leader is the index of the replica that has used most CPU of those alive, all in all.
func (b *bench) leader() (index int) {
	top := -1.0
	for i, p := range b.pids {
		if cpu := readUsage(p).cpu; alive(p) && cpu > top {
			top, index = cpu, i
		}
	}
	return index
}

func (b *bench) report(phase string, kv map[string]any) {
	kv["phase"], kv["product"], kv["run"], kv["clusters"], kv["apps"] = phase, *product, *runNumber, len(b.kubes), len(b.apps)
	b.reported[phase]++
	for _, k := range []string{"missing", "crs_left", "sts_left"} {
		if n, _ := kv[k].(int); n > 0 {
			b.faults = append(b.faults, fmt.Sprintf("%s: %s %d", phase, k, n))
		}
	}
	cpu, _ := b.cpuSincePhase()
	kv["controller_cpu_s"] = round(cpu)
	rss := 0.0
	for _, p := range b.pids {
		if alive(p) {
			rss = max(rss, readUsage(p).rssMB)
		}
	}
	kv["max_rss_mb"] = round(rss)
	out, _ := json.Marshal(kv)
	fmt.Println(string(out))
	fmt.Fprintf(os.Stderr, "%s/%d %s%s\n", *product, *runNumber, phase, summary(kv))
}

// summary is what a person wants to see at once: what is missing, and each kind of write.
func summary(kv map[string]any) (text string) {
	if n, _ := kv["missing"].(int); n > 0 {
		text += fmt.Sprintf(": %d MISSING", n)
	}
	if writes, ok := kv["api_writes_per_app_by_kind"].(map[string]float64); ok {
		text += fmt.Sprintf(": %.2f API writes per app:", kv["api_writes_per_app"])
		for _, kind := range slices.Sorted(maps.Keys(writes)) {
			text += fmt.Sprintf(" [%s %.2f]", kind, writes[kind])
		}
	}
	return text
}

func round(f float64) float64 { return math.Round(f*1000) / 1000 }

// latencies adds n, p50, p99 and max of to(r)-from(r) in ms under the given prefix.
func (b *bench) latencies(kv map[string]any, prefix string, rs []*rec, from, to func(*rec) time.Time) (last time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var ms []float64
	for _, r := range rs {
		f, t := from(r), to(r)
		if f.IsZero() || t.IsZero() {
			continue
		}
		ms = append(ms, t.Sub(f).Seconds()*1000)
		if t.After(last) {
			last = t
		}
	}
	if len(ms) == 0 {
		return last
	}
	slices.Sort(ms)
	q := func(p float64) float64 {
		return math.Round(ms[min(len(ms)-1, int(math.Ceil(p*float64(len(ms))))-1)]*10) / 10
	}
	kv[prefix+"_n"], kv[prefix+"_p50_ms"], kv[prefix+"_p99_ms"], kv[prefix+"_max_ms"] = len(ms), q(.5), q(.99), q(1)
	return last
}

func asHTTP(err error, he **httpError) bool {
	e, ok := err.(*httpError)
	if ok {
		*he = e
	}
	return ok
}
