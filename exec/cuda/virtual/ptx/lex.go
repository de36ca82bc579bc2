package ptx

import "strings"

type token struct {
	text string
	line int
	kind byte // 'w' word, 'n' number, 's' string, 'p' punctuation, 0 the end
}

// lex splits the text into tokens. Words may contain '%', '$', '_', '.', and "::".
func lex(text string) ([]token, error) {
	tokens := make([]token, 0, len(text)/4) // compiled PTX has slightly fewer
	line := 1
	for i := 0; i < len(text); {
		c := text[i]
		switch {
		case c == '\n':
			line++
			i++
		case c == ' ' || c == '\t' || c == '\r' || c == 0:
			i++
		case strings.HasPrefix(text[i:], "//"):
			end := strings.IndexByte(text[i:], '\n')
			if end < 0 {
				end = len(text) - i
			}
			i += end
		case strings.HasPrefix(text[i:], "/*"):
			end := strings.Index(text[i+2:], "*/")
			if end < 0 {
				return nil, Errorf(line, "unterminated comment")
			}
			line += strings.Count(text[i:i+2+end], "\n")
			i += end + 4
		case c == '"':
			end := strings.IndexAny(text[i+1:], "\"\n")
			if end < 0 || text[i+1+end] == '\n' {
				return nil, Errorf(line, "unterminated string")
			}
			tokens = append(tokens, token{text[i+1 : i+1+end], line, 's'})
			i += end + 2
		case c >= '0' && c <= '9':
			end := i
			for end < len(text) && (isWord(text[end]) || text[end] == '.') {
				end++
			}
			tokens = append(tokens, token{text[i:end], line, 'n'})
			i = end
		case isWord(c) || c == '%' || c == '.':
			end := i + 1
			for end < len(text) {
				if isWord(text[end]) || text[end] == '.' || text[end] == '%' {
					end++
				} else if strings.HasPrefix(text[end:], "::") {
					end += 2
				} else {
					break
				}
			}
			tokens = append(tokens, token{text[i:end], line, 'w'})
			i = end
		case strings.IndexByte("{}()[]<>,;:=+-!|@*~&", c) >= 0:
			tokens = append(tokens, token{text[i : i+1], line, 'p'})
			i++
		default:
			return nil, Errorf(line, "character %q", c)
		}
	}
	return append(tokens, token{"", line, 0}), nil
}

func isWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '$'
}
