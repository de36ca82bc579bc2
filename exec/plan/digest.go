package plan

// Digest returns "sha256:…" of a plan without the paths of its files and the digests of their
// weights. Copies of a plan have the same digest, so a measurement of one applies to all.
func Digest(p *Plan) string {
	q := *p
	q.Model.File, q.Model.WeightsDigest = "", ""
	q.Sidecar.File, q.Sidecar.WeightsDigest = "", ""
	body, _, _ := cutTrailer(string(Print(&q)))
	return digest(body)
}
