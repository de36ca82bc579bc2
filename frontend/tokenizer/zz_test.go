package tokenizer
import ("testing";"os";"encoding/json";"slices")
func TestZZ(t *testing.T){
 d,_:=os.ReadFile("/tmp/oracle.json"); var cs []struct{File,Text string; IDs []int32}
 json.Unmarshal(d,&cs); m:=map[string]*Tokenizer{}; bad:=map[string]int{}; all:=map[string]int{}
 for _,c:=range cs{ tk:=m[c.File]; if tk==nil{tk=load(t,c.File);m[c.File]=tk}
  all[c.File]++
  g,_:=tk.Encode([]byte(c.Text),Options{}); if !slices.Equal(g,c.IDs){bad[c.File]++; if bad[c.File]<4{t.Errorf("%s %q\n got %v\nwant %v",c.File,c.Text,describe(tk,g),describe(tk,c.IDs))}}}
 t.Log(all,bad)
}
