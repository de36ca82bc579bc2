package plan_test

import (
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"pesti/conformance/testenv"
	"pesti/exec/plan"
	"pesti/exec/plan/plantest"
)

// hostile makes texts of about n bytes on which a careless parser or verifier takes quadratic time,
// or allocates what a number claims.
var hostile = map[string]func(text string, n int) string{
	"numbers": func(text string, n int) string {
		return regexp.MustCompile(`(ctx|ubatch|rows|size|weight|state|io|arena|each)=[0-9]+`).ReplaceAllString(text, "${1}=1000000000000000000")
	},
	"buffers": func(text string, n int) string {
		return insert(text, "\nprogram", n, func(i int) string { return fmt.Sprintf("\nbuffer b%d io f32 T size=128 n%d", i+100, i) })
	},
	"arena buffers": func(text string, n int) string {
		return insert(text, "\n  wave 0", n, func(i int) string {
			return fmt.Sprintf("\nbuffer b%d arena f32 T size=128 offset=0 steps=[0,1) n%d", i+100, i)
		})
	},
	"weights": func(text string, n int) string {
		return insert(text, "\nbuffer b0", n, func(i int) string { return fmt.Sprintf("\nweight @w%d f32[1] size=4", i) })
	},
	"dims": func(text string, n int) string {
		return insert(text, ", 64] size=6400", n, func(i int) string { return ", 1" })
	},
	"programs": func(text string, n int) string {
		return insert(text, "\nprogram", n, func(i int) string { return fmt.Sprintf("\nprogram p%d 1 <= T <= 1, R <= 1", i) })
	},
	"waves": func(text string, n int) string {
		return text[:strings.LastIndex(text, "\nend")] + insert("\nend", "\nend", n, func(i int) string { return fmt.Sprintf("\nwave %d", i+100) })
	},
	"operands": func(text string, n int) string {
		return insert(text, " -> y", n, func(i int) string { return " x=b7" })
	},
	"parameters": func(text string, n int) string {
		return insert(text, ", vocab", n, func(i int) string { return fmt.Sprintf(", p%d=1", i) })
	},
	"formula": func(text string, n int) string {
		return strings.Replace(text, " T*64 ", ` "`+strings.Repeat("(", n/2)+"1"+strings.Repeat(")", n/2)+`" `, 1)
	},
	"blanks": func(text string, n int) string {
		return insert(text, "\npasses", n, func(int) string { return " \t \t" })
	},
	"lines":    func(text string, n int) string { return insert(text, "\npasses", n, func(int) string { return "\n" }) },
	"comments": func(text string, n int) string { return insert(text, "\npasses", n, func(int) string { return "\n#" }) },
	"escapes": func(text string, n int) string {
		return insert(text, "../models", n, func(int) string { return `\x00` })
	},
}

// insert inserts about n bytes of words before the first mark.
func insert(text, mark string, n int, word func(i int) string) string {
	before, after, _ := strings.Cut(text, mark)
	var b strings.Builder
	b.WriteString(before)
	for i := 0; b.Len() < len(before)+n; i++ {
		b.WriteString(word(i))
	}
	return b.String() + mark + after
}

// Time and memory for a text are proportional to its length, whatever numbers it holds. The length
// of an error is bounded.
func TestBounded(t *testing.T) {
	text := string(plan.Print(plantest.Plan(1)))
	for name, write := range hostile {
		t.Run(name, func(t *testing.T) {
			in := plan.Seal([]byte(write(text, 1<<18)))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			begin := testenv.ProcessorTime()
			p, err := plan.Parse(in)
			if err == nil {
				err = plan.Verify(p)
			}
			took := testenv.ProcessorTime() - begin
			runtime.ReadMemStats(&after)
			// Quadratic time takes minutes.
			if took > 10*time.Second {
				t.Errorf("took %v for %d bytes", took, len(in))
			}
			if bytes := after.TotalAlloc - before.TotalAlloc; bytes > 128*uint64(len(in)) {
				t.Errorf("allocated %d bytes for a text of %d", bytes, len(in))
			}
			if err != nil && len(err.Error()) > 400 {
				t.Errorf("an error of %d bytes: %.400s", len(err.Error()), err)
			}
		})
	}
}
