package wording

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Line makes one short printable line of external text.
func Line(message string) string {
	message, _, _ = strings.Cut(message, "\n")
	message = strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return ' '
		}
		return c
	}, message)
	return Clip(strings.TrimSpace(message), 200)
}

// Clip shortens a text to at most n characters, the last of which shows that there were more.
func Clip(text string, n int) string {
	if utf8.RuneCountInString(text) <= n {
		return text
	}
	return string([]rune(text)[:n-1]) + "…"
}

// maxSuggestLength bounds the compared words.
const maxSuggestLength = 64

// Nearest returns the candidate that a word is most likely a misspelling of; "" when none is
// near, or the word is one of them.
func Nearest(word string, candidates []string) string {
	if len(word) > maxSuggestLength {
		return ""
	}
	best, bestDistance := "", max(len(word)/3, 1)+1
	for _, c := range candidates {
		if len(c) > maxSuggestLength {
			continue
		}
		d := editDistance(normalWord(word), normalWord(c))
		if len(word) >= 4 && strings.HasPrefix(normalWord(c), normalWord(word)) {
			d = min(d, 1) // namespace for namespace_name
		}
		if d < bestDistance {
			best, bestDistance = c, d
		}
	}
	if best == word {
		return ""
	}
	return best
}

// Misspelt returns the candidate that a word differs from in case, separators or at most two
// letters; "" if there is none, or the word is one of them.
func Misspelt(word string, candidates []string) string {
	if len(word) > maxSuggestLength {
		return ""
	}
	normal, best, bestDistance := normalWord(word), "", min(3, len(normalWord(word)))
	for _, c := range candidates {
		if c == word {
			return ""
		}
		if len(c) > maxSuggestLength {
			continue
		}
		if d := editDistance(normal, normalWord(c)); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// normalWord normalizes maxAttempts, max-attempts and MAX_ATTEMPTS to the same word.
func normalWord(word string) string { return strings.ToLower(unspaced.Replace(word)) }

// unspaced is made once: building it takes longer than using it.
var unspaced = strings.NewReplacer("_", "", "-", "", " ", "")

// editDistance counts the insertions, deletions and replacements of bytes, and swaps of
// neighbours, that turn a into b.
func editDistance(a, b string) int {
	earlier, previous, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		earlier, previous, row = previous, row, earlier
		row[0] = i + 1
		for j := range len(b) {
			replaced := previous[j]
			if a[i] != b[j] {
				replaced++
			}
			row[j+1] = min(replaced, row[j]+1, previous[j+1]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], earlier[j-1]+1)
			}
		}
	}
	return row[len(b)]
}
