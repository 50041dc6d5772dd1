package main

import (
	"maps"
	"testing"
)

func TestOthersWritesLeaveOutLeasesReadsAndTheDriversOwn(t *testing.T) {
	byKind, total := othersWrites(map[string]float64{
		"POST eventsourcedapps": 20, "APPLY eventsourcedapps/status": 20, "APPLY services": 21, "APPLY services 409": 1,
		"POST events": 20, "PUT leases": 7, "PATCH leases 409": 1, "WATCH services": 3, "LIST services": 2,
	}, "POST eventsourcedapps", 20)
	want := map[string]float64{"APPLY eventsourcedapps/status": 20, "APPLY services": 21, "APPLY services 409": 1, "POST events": 20}
	if !maps.Equal(byKind, want) || total != 62 {
		t.Fatalf("got %v, %v", byKind, total)
	}
}

func TestTheSummaryShowsEachKindOfWrite(t *testing.T) {
	kv := m{"missing": 0}
	perApp(kv, map[string]float64{"APPLY services": 20, "POST events": 30}, 50, 20)
	if got, want := summary(kv), ": 2.50 API writes per app: [APPLY services 1.00] [POST events 1.50]"; got != want {
		t.Fatalf("got %q, want %q", got, want)
	}
}
