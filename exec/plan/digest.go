package plan

// Digest returns "sha256:…" of all that a plan says but of where its files lie and whether their
// weights were hashed: what was measured of a plan holds for every copy of it.
func Digest(p *Plan) string {
	q := *p
	q.Model.File, q.Model.WeightsDigest = "", ""
	q.Sidecar.File, q.Sidecar.WeightsDigest = "", ""
	body, _, _ := cutTrailer(string(Print(&q)))
	return digest(body)
}
