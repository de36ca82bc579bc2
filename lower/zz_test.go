package lower
import ("testing";"pesti/conformance/tiny";"pesti/frontend";"pesti/exec/plan")
func TestZZ(t *testing.T){
	m, _ := frontend.Load(tiny.File(t, tiny.Config{Layers:1}))
	for _, prec := range []string{"exact","fast"} {
	r, err := Compile(m, Options{Target:"cuda",Devices:2,Split:"tensor",Precision:prec,Ubatch:64,Verify:true})
	if err!=nil {t.Fatal(err)}
	t.Log("\n"+string(plan.Print(r.Plan)))
	}
}
