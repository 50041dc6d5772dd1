package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// usage is a sample of a process from /proc.
type usage struct {
	cpu                  float64 // seconds
	rssMB, pssMB, peakMB float64
	threads, fds         int
}

func readUsage(pid int) (u usage) {
	dir := fmt.Sprintf("/proc/%d/", pid)
	if b, err := os.ReadFile(dir + "stat"); err == nil {
		f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
		ut, _ := strconv.ParseFloat(f[11], 64)
		st, _ := strconv.ParseFloat(f[12], 64)
		u.cpu = (ut + st) / 100
	}
	mb := func(file, key string) float64 {
		f, err := os.Open(dir + file)
		if err != nil {
			return 0
		}
		defer f.Close()
		for s := bufio.NewScanner(f); s.Scan(); {
			if v, ok := strings.CutPrefix(s.Text(), key+":"); ok {
				kb, _ := strconv.ParseFloat(strings.Fields(v)[0], 64)
				return kb / 1024
			}
		}
		return 0
	}
	u.rssMB, u.peakMB, u.pssMB = mb("status", "VmRSS"), mb("status", "VmHWM"), mb("smaps_rollup", "Pss")
	u.threads = int(mb("status", "Threads") * 1024)
	if d, err := os.ReadDir(dir + "fd"); err == nil {
		u.fds = len(d)
	}
	return u
}

func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(b[strings.LastIndexByte(string(b), ')'):]), ") Z")
}

// process is a replica that the driver started.
type process struct {
	pid    int
	asked  syscall.Signal // what was sent to end it; 0: nothing
	code   int            // its exit status, -1 for a signal; good once exited is closed
	exited chan struct{}
}

func (p *process) ended() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// spawn starts a controller replica, which ends with the driver; its output goes to logFile.
func spawn(command, logFile string) (*process, error) {
	f, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	cmd := exec.Command("sh", "-c", "exec "+command)
	cmd.Stdout, cmd.Stderr = f, f
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{pid: cmd.Process.Pid, exited: make(chan struct{})}
	go func() {
		cmd.Wait()
		p.code = cmd.ProcessState.ExitCode()
		close(p.exited)
	}()
	return p, nil
}

// load1 is the machine's load average over the last minute.
func load1() float64 {
	b, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(b), " ")
	v, _ := strconv.ParseFloat(first, 64)
	return v
}

func fourLetter(addr, word string) (string, error) {
	c, err := net.DialTimeout("tcp", addr, 2*time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Write([]byte(word)); err != nil {
		return "", err
	}
	b, err := io.ReadAll(c)
	return string(b), err
}

// mntr sums numeric mntr values over all ensembles' first servers.
func mntr(addrs []string) map[string]float64 {
	out := map[string]float64{}
	for _, a := range addrs {
		text, _ := fourLetter(a, "mntr")
		for line := range strings.Lines(text) {
			f := strings.Fields(line)
			if len(f) == 2 {
				if v, err := strconv.ParseFloat(f[1], 64); err == nil {
					out[strings.TrimPrefix(f[0], "zk_")] += v
				}
			}
		}
	}
	return out
}

var consLine = regexp.MustCompile(`recved=(\d+),.*sid=0x([0-9a-f]+)`)

// sessions returns packets received per live session id, without the given ones.
func sessions(addrs []string, own map[int64]bool) (others map[string]int, ownRecv int) {
	others = map[string]int{}
	for _, a := range addrs {
		text, _ := fourLetter(a, "cons")
		for _, m := range consLine.FindAllStringSubmatch(text, -1) {
			n, _ := strconv.Atoi(m[1])
			sid, _ := strconv.ParseUint(m[2], 16, 64)
			if own[int64(sid)] {
				ownRecv += n
			} else {
				others[a+"/"+m[2]] = n
			}
		}
	}
	return others, ownRecv
}
