package graph_test

import (
	"fmt"
	"log"

	"pesti/graph"
	"pesti/ops"
)

// A graph in its text form: names of weights begin with @, names of results with %, and _ is an
// absent operand.
func ExampleParse() {
	g, err := graph.Parse(`
graph gate (T <= 4)
  @up : f32[6, 64]
  @emb : q8_0[100, 64]
  %tokens : i32[T] = input {dtype: "i32", sym: "T"}
  %x : f32[T, 64] = get_rows @emb, %tokens
  %h : f32[T, 6] = matmul %x, @up, _
  output %h
`, ops.Lookup)
	if err != nil {
		log.Fatal(err)
	}
	if err := graph.Verify(g); err != nil {
		log.Fatal(err)
	}
	fmt.Print(graph.Print(g))
	// Output:
	// graph gate (T <= 4)
	//   @up  : f32[6, 64]
	//   @emb : q8_0[100, 64]
	//
	//   %tokens : i32[T]     = input {dtype: "i32", sym: "T"}
	//   %x      : f32[T, 64] = get_rows @emb, %tokens
	//   %h      : f32[T, 6]  = matmul %x, @up, _
	//
	//   output %h
}
