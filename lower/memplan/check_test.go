package memplan

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Check agrees with the definition on plans with one corrupted number.
func TestCheckAgreesWithDefinition(t *testing.T) {
	refused := 0
	rapid.Check(t, func(t *rapid.T) {
		bufs := drawBuffers(t, 20)
		plan, err := Best(bufs, Options{Evaluations: -1})
		if err != nil {
			t.Fatal(err)
		}
		if len(bufs) == 0 {
			return
		}
		i := rapid.IntRange(0, len(bufs)-1).Draw(t, "victim")
		switch rapid.IntRange(0, 4).Draw(t, "corruption") {
		case 0:
			plan.Offsets[i] = rapid.Int64Range(-64, plan.Size+64).Draw(t, "offset")
		case 1:
			plan.Offsets[i] = plan.Offsets[rapid.IntRange(0, len(bufs)-1).Draw(t, "other")]
		case 2:
			plan.Size -= rapid.Int64Range(1, 100).Draw(t, "less")
		case 3:
			bufs[i].Size += rapid.Int64Range(1, 100).Draw(t, "more")
		case 4:
			bufs[i].Last += rapid.IntRange(1, 4).Draw(t, "longer")
		}
		err = Check(bufs, plan.Offsets, plan.Size)
		if want := checkAll(bufs, plan.Offsets, plan.Size); (err == nil) != want {
			t.Fatalf("Check: %v; by definition a plan: %v", err, want)
		}
		if err != nil {
			refused++
		}
	})
	if refused == 0 {
		t.Error("no corruption broke a plan: the test shows nothing")
	}
}

func TestCheckNamesTheFault(t *testing.T) {
	bufs := []Buffer{{128, 0, 4, 64}, {64, 2, 6, 64}, {64, 4, 8, 64}}
	tests := []struct {
		name    string
		offsets []int64
		size    int64
		want    string
	}{
		{"good", []int64{0, 128, 0}, 192, ""},
		{"too few offsets", []int64{0, 128}, 192, "2 offsets for 3 buffers"},
		{"negative", []int64{-64, 128, 0}, 192, "buffer 0: offset -64"},
		{"misaligned", []int64{0, 129, 0}, 256, "buffer 1: offset 129, expected a multiple of 64"},
		{"outside", []int64{0, 128, 0}, 191, "buffer 1: 64 bytes at offset 128, expected to end within the arena's 191 bytes"},
		{"far outside", []int64{0, math.MaxInt64 &^ 63, 0}, 192, "buffer 1: 64 bytes at offset 9223372036854775744"},
		{"end overflows", []int64{0, math.MaxInt64 &^ 63, 0}, math.MaxInt64, "buffer 1: 64 bytes at offset 9223372036854775744"},
		{"same place", []int64{0, 0, 128}, 192, "buffers 0 and 1 collide: steps [0, 4) and [2, 6), bytes [0, 128) and [0, 64)"},
		{"below", []int64{0, 64, 0}, 192, "buffers 0 and 1 collide: steps [0, 4) and [2, 6), bytes [0, 128) and [64, 128)"},
		{"later", []int64{0, 128, 128}, 192, "buffers 1 and 2 collide: steps [2, 6) and [4, 8), bytes [128, 192) and [128, 192)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := Check(bufs, tt.offsets, tt.size)
			if tt.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("got %v, want %s…", err, tt.want)
			}
		})
	}
	if err := Check([]Buffer{{Size: 1, Last: 1, Align: 3}}, []int64{0}, 64); err == nil || !strings.HasPrefix(err.Error(), "buffer 0: alignment 3") {
		t.Errorf("invalid buffer: %v", err)
	}
}

// The two buffers that Check names do collide, whatever else is wrong with the offsets.
func TestCheckNamesCollidingBuffers(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	bufs := scattered(rng, 100)
	for range 200 {
		offsets := make([]int64, len(bufs))
		for i := range offsets {
			offsets[i] = rng.Int64N(1<<15) * 64
		}
		err := Check(bufs, offsets, math.MaxInt64)
		if checkAll(bufs, offsets, math.MaxInt64) {
			t.Fatal("random offsets do not collide")
		}
		var i, j int
		if _, serr := fmt.Sscanf(fmt.Sprint(err), "buffers %d and %d collide", &i, &j); serr != nil {
			t.Fatalf("got %v", err)
		}
		if checkAll([]Buffer{bufs[i], bufs[j]}, []int64{offsets[i], offsets[j]}, math.MaxInt64) {
			t.Fatalf("they do not: %v", err)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	bufs := transformer(40, 512, 896, 128, 4864)
	plan, err := Best(bufs, Options{})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := Check(bufs, plan.Offsets, plan.Size); err != nil {
			b.Fatal(err)
		}
	}
}
