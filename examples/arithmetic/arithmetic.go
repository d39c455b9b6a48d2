// Package arithmetic has the handlers of the diamond, the tree and the mixed graph: one
// squares the input, the other multiplies the parents' results and squares the product.
// Numbers are decimal strings where they exceed what JSON readers represent exactly.
package arithmetic

import (
	"encoding/json"
	"fmt"
	"math/big"

	"github.com/tasker-go/tasker/worker"
)

// exact is the largest integer that every JSON reader represents exactly.
var exact = big.NewInt(1<<53 - 1)

// Input is the context of the tasks.
type Input struct {
	EvenNumber int64 `json:"even_number"`
}

// Register gives a worker both handlers.
func Register(w *worker.Worker) error {
	if err := worker.Handle(w, "arithmetic.square_input", SquareInput); err != nil {
		return err
	}
	return w.Register("arithmetic.square_product", worker.HandlerFunc(SquareProduct))
}

// SquareInput squares the number of the task; an odd one is a permanent failure.
func SquareInput(_ *worker.StepContext, in Input) (any, error) {
	if in.EvenNumber%2 != 0 {
		return nil, worker.WithCode(worker.Permanent(fmt.Errorf("invalid number %d: want an even one", in.EvenNumber)), "VALIDATION_ERROR")
	}
	return number(square(big.NewInt(in.EvenNumber))), nil
}

// SquareProduct multiplies the results of all parents and squares the product.
func SquareProduct(ctx *worker.StepContext) (any, error) {
	product := big.NewInt(1)
	for name, raw := range ctx.DependencyResults() {
		n, err := parse(raw)
		if err != nil {
			return nil, worker.Permanent(fmt.Errorf("invalid result of %s: want a number: %w", name, err))
		}
		product.Mul(product, n)
	}
	return number(square(product)), nil
}

func square(n *big.Int) *big.Int { return new(big.Int).Mul(n, n) }

// number returns n as a JSON number while that is exact, else its digits as a string.
func number(n *big.Int) any {
	if n.CmpAbs(exact) <= 0 {
		return n.Int64()
	}
	return n.String()
}

func parse(raw json.RawMessage) (*big.Int, error) {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		text = string(raw)
	}
	n, ok := new(big.Int).SetString(text, 10)
	if !ok {
		return nil, fmt.Errorf("%.40q", text)
	}
	return n, nil
}
