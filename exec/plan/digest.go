package plan

// Digest returns "sha256:…" of all that a plan says but of where its model lies and whether its
// weights were hashed: what was measured of a plan holds for every copy of it.
func Digest(p *Plan) string {
	q := *p
	q.Model.File, q.Model.Data = "", ""
	body, _, _ := cutTrailer(string(Print(&q)))
	return digest(body)
}
