package conformance

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"pesti/exec/plan"
	"pesti/ops"
)

// TestOperandNames checks that each constant name of an operand in the code is one that an op or a kernel has. A
// misspelled one panics only when it is used.
func TestOperandNames(t *testing.T) {
	known := map[string]bool{}
	for _, row := range ops.Table() {
		for _, in := range row.Op.In {
			known[in.Name] = true
		}
	}
	for _, s := range plan.Kernels() {
		for _, o := range s.Operands {
			known[o.Role] = true
		}
	}
	found := 0
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			method, isMethod := call.Fun.(*ast.SelectorExpr)
			name, isConstant := call.Args[0].(*ast.BasicLit)
			if !isMethod || !isConstant || name.Kind != token.STRING || method.Sel.Name != "Operand" && method.Sel.Name != "SetOperand" {
				return true
			}
			found++
			if text, err := strconv.Unquote(name.Value); err != nil || !known[text] {
				t.Errorf("%s: no op or kernel has an operand %s", fset.Position(n.Pos()), name.Value)
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 100 {
		t.Errorf("found %d names, expected at least 100: the walk does not see the code", found)
	}
}
