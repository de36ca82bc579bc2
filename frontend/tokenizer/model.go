package tokenizer

// A model is one value of tokenizer.ggml.model.
type model struct {
	name       string
	spelling   spelling
	cost       cost
	wants      []string  // keys of required arrays
	splitter   *splitter // nil: named by tokenizer.ggml.pre
	spaceFirst bool      // a text begins with a space unless the file disables it
	alwaysBOS  bool      // even if the file disables it
}

var models = []model{
	{
		name:     "gpt2",
		spelling: byteLevel,
		cost:     byRank,
		wants:    []string{keyMerges},
	},
	{
		name:       "llama",
		spelling:   escaped,
		cost:       byScore,
		wants:      []string{keyScores, keyTypes},
		splitter:   &splitter{addBOS: true},
		spaceFirst: true,
	},
	{
		// Merges never cross a line break, and a run of line breaks is a token
		// that they cannot always reach.
		name:     "gemma4",
		spelling: escaped,
		cost:     byRank,
		wants:    []string{keyMerges, keyTypes},
		splitter: &splitter{
			rules:  []rule{find(many(in(lineFeed)))},
			whole:  func(word []byte) bool { return word[0] == '\n' },
			addBOS: true,
		},
		alwaysBOS: true,
	},
}

func findModel(name string) (*model, bool) {
	for i := range models {
		if models[i].name == name {
			return &models[i], true
		}
	}
	return nil, false
}

func modelNames() []string {
	var names []string
	for _, m := range models {
		names = append(names, m.name)
	}
	return names
}
