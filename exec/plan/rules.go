package plan

import "fmt"

// A Rule is a condition on several parameters of a step. A kernel relies on the rules to stay
// inside its operands and to compute finite numbers. Each parameter's own range is checked before.
type Rule func(s *Scope) error

// param returns an integer parameter, 0 if the kernel does not have it.
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

// headsDivide requires the same number of query heads for each key-value head.
func headsDivide(s *Scope) error {
	if h, kv := s.param("heads"), s.param("kv_heads"); h%kv != 0 {
		return fmt.Errorf("heads is %d, expected a multiple of kv_heads %d", h, kv)
	}
	return nil
}

// rotationFits requires that RoPE rotates pairs of elements inside a head.
func rotationFits(s *Scope) error {
	if rot, dim := s.param("rot"), s.param("head_dim"); rot%2 != 0 || rot > dim {
		return fmt.Errorf("rot is %d, expected an even number up to head_dim %d", rot, dim)
	}
	return nil
}

// rotationTurns requires a base that is not near 0, since RoPE's frequencies are powers of it.
func rotationTurns(s *Scope) error {
	const least = 1e-18
	if base := s.number("base"); s.param("rot") > 0 && base < least {
		return fmt.Errorf("base is %v, expected at least %v, since rot is above 0", base, least)
	}
	return nil
}

// groupDivides requires rows of whole groups.
func groupDivides(s *Scope) error {
	if n, g := s.param("n"), s.param("group"); n%g != 0 {
		return fmt.Errorf("group is %d, expected a divisor of n %d", g, n)
	}
	return nil
}

// cacheHolds requires a page for every position of the context, or a ring of whole pages. In a
// ring, the tokens of one step must not overwrite positions that its first token still sees.
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

// ringHasWindow requires a window if the cache is a ring, since a ring overwrites older positions.
func ringHasWindow(s *Scope) error {
	if s.param("ring") == 1 && s.param("window") == 0 && s.param("positions")/PageTokens < s.P {
		return fmt.Errorf("window is 0, expected the number of positions a token sees, since the cache is a ring")
	}
	return nil
}
