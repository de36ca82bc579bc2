package quant

import "pesti/gguf/numfmt"

// These types take eight elements g at a time from a grid of −1, 0 and 1, and shift
// them up or down together: x = (d·(2s + 1))·(g ± ⅛) with 3-bit s.

// IQ1_S: 256 elements in 8 sub-blocks of 32. Block: f16 d, 32 bytes with the low
// eight bits of indices into the grid, 8 words u16, one for each sub-block: the
// high three bits of its four indices, s, and a bit that is set where ⅛ is
// subtracted.

func dequantizeIQ1_S(dst []float32, src []byte) {
	grid := iq1()
	for len(dst) >= 256 {
		y, b := (*[256]float32)(dst), (*[50]byte)(src)
		d := numfmt.F16ToF32(le.Uint16(b[0:]))
		for at := range 32 {
			word := le.Uint16(b[34+at/4*2:])
			index := int(b[2+at]) | int(word>>(at%4*3)&7)<<8
			moved(y[8*at:8*at+8], d*float32(2*(word>>12&7)+1), grid.point(index), word>>15 != 0)
		}
		dst, src = dst[256:], src[50:]
	}
}

// IQ1_M: 256 elements in 16 sub-blocks of 16. Block: 32 bytes with the low eight
// bits of indices into the grid, 16 bytes with a nibble for each index: its high
// three bits, and one that is set where ⅛ is subtracted; 4 words u16 with 4 times
// 3 bits for the s; their high nibbles make up f16 d, see readIQ1_M.

func dequantizeIQ1_M(dst []float32, src []byte) {
	grid := iq1()
	for len(dst) >= 256 {
		y, b := (*[256]float32)(dst), (*[56]byte)(src)
		d := readIQ1_M(b[48:])
		for at := range 32 {
			s := le.Uint16(b[48+at/8*2:]) >> (at / 2 % 4 * 3) & 7
			high := nibble(b[32:48], at)
			index := int(b[at]) | int(high&7)<<8
			moved(y[8*at:8*at+8], d*float32(2*s+1), grid.point(index), high&8 != 0)
		}
		dst, src = dst[256:], src[56:]
	}
}

// readIQ1_M reads a float16 number from the high nibbles of four words, the low
// nibble first.
func readIQ1_M(b []byte) float32 {
	return numfmt.F16ToF32(le.Uint16(b[0:])>>12 | le.Uint16(b[2:])>>12<<4 | le.Uint16(b[4:])>>12<<8 | le.Uint16(b[6:])>>12<<12)
}

// moved sets y to scale times the point shifted by ⅛, down or up.
func moved(y []float32, scale float32, point []int8, down bool) {
	by := float32(0.125)
	if down {
		by = -by
	}
	for i, g := range point {
		y[i] = scale * (float32(g) + by)
	}
}

var iq1 = gridOf(8, []int8{-1, 0, 1}, `
555241580a2024158054138a6802a82aa180a20241580541280244545251500a20280288810080280a30a20a88bbaaa0
09aab0002200a0aac8280a80041580541288080541241580a80380890a8008a2805412415802842455805410c22c0a02
a86200a2428aaa2a802efa80808282000a202482aa82028a0802a0b9809bab8a02acea982aeaaaa3c7beaeabbb28e08b
22abac3de02920220022028aa8aba028208000a2a40e2ab32202b22a00180418aaa88280221041580551280290541245
580a8020328aa302482802452415802a028059054120a2808b8a28080a84200280282a862a2082baa280580280280380
540400541241580a002415005410922800a828a2801a03415005412882805412415802202002aaa20002211ba8ea828a
ab1aaa8a070028a080208222204800280084080aae0ba2aa2c02b8ab22aead7ab8b8e68a290ba2aa27b8a844c0a20284
480482a8a280aa028ccc2a222afaa90a8e8a20002000a28a880002080ab82a2a82ab0a082823a0abeb8babefbe2a0ab2
2a80a8a082ae2a001a2320c0af4aaeedfeb28ae2d8ebe7beaf7ff7fb6ed7abed96bf72fffb62af219e1ea82201aaebe0
48aa802b8ab028eaffab429e38084026c2862f8aa04ab20020a280802eaa21002028a2a06a029c2898092882002a00c8
08310028808000c6a8aaaabb206aeba80aac2008b679e20d2b9e012801e2aaed82511d5a4000a02800a8280280101a02
28aa93ab2223480a90088100a82a262018414415005412ca280541241580aa0282aa78a021a280541241500a80241580
541002200a042a22008800802a80a6a8e68baaaa080002a0282e8c221280440541241590a8025158054168a080aaa2a2
0800a024158054128a0005412415802e028828a08128a280aa2aaaa80bb820a0a2aa02822808aaa0828082009a882022
0aebb0828b80a8abb42beaffab4a8feaaa022582866b0a036e08a020828022a6260802a020aaaab2aaae2a9a0a2a8080
01020aa8220028e000541241580aa004158054129a6000a4aa20805a0001d044412882805412415000802828ca2f0200
0000aaa082a0ab02ae2a2000288490829e410011b454150054108a2005412415808842808882a0048000541041500a20
041580541`)
