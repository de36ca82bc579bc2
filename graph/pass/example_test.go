package pass_test

import (
	"fmt"
	"log"

	"pesti/graph"
	"pesti/graph/pass"
	"pesti/ops"
)

// A feed-forward whose gate and up become one op. The notes say where each pass applied, and where
// and why it declined.
func ExampleRun() {
	g, err := graph.Parse(`
graph feed_forward (T <= 4)
  @emb : f32[100, 8]
  @gate : f32[6, 8]
  @up : f32[6, 8]
  %tokens : i32[T] = input {dtype: "i32", sym: "T"}
  %x : f32[T, 8] = get_rows @emb, %tokens
  %g : f32[T, 6] = matmul %x, @gate, _
  %a : f32[T, 6] = silu %g
  %u : f32[T, 6] = matmul %x, @up, _
  %h : f32[T, 6] = mul %a, %u
  output %h
`, ops.Lookup)
	if err != nil {
		log.Fatal(err)
	}
	notes, err := pass.Run(g, pass.Graph(), pass.Options{Verify: true})
	if err != nil {
		log.Fatal(err)
	}
	for _, n := range notes {
		if n.Applied {
			fmt.Println(n.Pass, "made", n.Place)
		} else {
			fmt.Println(n.Pass, "left", n.Place+":", n.Why)
		}
	}
	fmt.Print(graph.Print(g))
	// Output:
	// fuse_gated_mlp made h
	// graph feed_forward (T <= 4)
	//   @emb  : f32[100, 8]
	//   @gate : f32[6, 8]
	//   @up   : f32[6, 8]
	//
	//   %tokens : i32[T]    = input {dtype: "i32", sym: "T"}
	//   %x      : f32[T, 8] = get_rows @emb, %tokens
	//   %h      : f32[T, 6] = gated_mlp %x, @gate, @up {act: "silu"}
	//
	//   output %h
}
