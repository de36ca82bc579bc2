package plan

import "fmt"

// A Rule is a condition on the parameters of a step beyond the range of each: what a kernel
// relies on so that no index it computes leaves an operand, and that it computes numbers. Each is
// already known to be in its range.
type Rule func(s *Scope) error

// param returns an integer parameter; one that the kernel does not have is 0.
func (s *Scope) param(name string) int64 {
	v, _ := s.lookup(name)
	return v
}

// number returns a parameter that is a number.
func (s *Scope) number(name string) float64 {
	for i := range s.Params {
		if s.Params[i].Name == name {
			v, _ := s.Params[i].Value.(float64)
			return v
		}
	}
	return 0
}

// headsDivide: each key-value head serves the same number of query heads.
func headsDivide(s *Scope) error {
	if h, kv := s.param("heads"), s.param("kv_heads"); h%kv != 0 {
		return fmt.Errorf("heads is %d, expected a multiple of kv_heads %d", h, kv)
	}
	return nil
}

// rotationFits: RoPE turns pairs of elements inside a head.
func rotationFits(s *Scope) error {
	if rot, dim := s.param("rot"), s.param("head_dim"); rot%2 != 0 || rot > dim {
		return fmt.Errorf("rot is %d, expected an even number up to head_dim %d", rot, dim)
	}
	return nil
}

// rotationTurns: the speeds of RoPE are powers of the base, which are numbers where it is not near 0.
func rotationTurns(s *Scope) error {
	const least = 1e-18
	if base := s.number("base"); s.param("rot") > 0 && base < least {
		return fmt.Errorf("base is %v, expected at least %v, since rot is above 0", base, least)
	}
	return nil
}

// groupDivides: a row is whole groups.
func groupDivides(s *Scope) error {
	if n, g := s.param("n"), s.param("group"); n%g != 0 {
		return fmt.Errorf("group is %d, expected a divisor of n %d", g, n)
	}
	return nil
}

// cacheHolds: a cache has a page for every position of the context, or is a ring of whole pages
// in which the tokens of one step do not run over the positions that its first one still sees.
func cacheHolds(s *Scope) error {
	positions, window := s.param("positions"), s.param("window")
	if positions%PageTokens != 0 {
		return fmt.Errorf("positions is %d, expected whole pages of %d", positions, PageTokens)
	}
	pages := positions / PageTokens
	switch ring := s.param("ring"); ring {
	case 0:
		if pages < s.P {
			return fmt.Errorf("positions is %d, expected the %d pages of a context of %d", positions, s.P, s.C)
		}
	case 1:
		if pages < s.P && positions-window < s.T-1 {
			return fmt.Errorf("positions is %d, expected at least window %d + tokens %d − 1 in a ring", positions, window, s.T)
		}
	default:
		return fmt.Errorf("ring is %d, expected 0 or 1", ring)
	}
	return nil
}

// ringHasWindow: in a ring older positions are lost, so attention must not look at them.
func ringHasWindow(s *Scope) error {
	if s.param("ring") == 1 && s.param("window") == 0 && s.param("positions")/PageTokens < s.P {
		return fmt.Errorf("window is 0, expected the number of positions a token sees, since the cache is a ring")
	}
	return nil
}
