package worker_test

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/worker"
)

// A thumbnail is made of the picture in the task's context. Both are JSON in the database,
// for rules, SQL and REST, and bytes for handlers in every language.
func ExampleBytes() {
	var in struct {
		Picture worker.Bytes `json:"picture"`
	}
	context := `{"picture": {"$bytes": "iVBORw0KGgo=", "content_type": "image/png"}}`
	if err := json.Unmarshal([]byte(context), &in); err != nil { // as worker.Handle does
		fmt.Println(err)
		return
	}
	result, err := json.Marshal(worker.Bytes{ContentType: in.Picture.ContentType, Data: in.Picture.Data[1:4]})
	fmt.Printf("%d %s %v", len(in.Picture.Data), result, err)
	// Output: 8 {"$bytes":"UE5H","content_type":"image/png"} <nil>
}

func TestBytesOfVectors(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../sdk/vectors/protocol.json")
	require.NoError(t, err)
	type form struct {
		Meaning     string          `json:"meaning"`
		Hex         string          `json:"hex"`
		ContentType string          `json:"content_type"`
		JSON        json.RawMessage `json:"json"`
	}
	var v struct {
		Bytes   []form `json:"bytes"`
		NoBytes []form `json:"no_bytes"`
	}
	require.NoError(t, json.Unmarshal(text, &v))
	require.NotEmpty(t, v.Bytes)
	for _, one := range v.Bytes {
		data, err := hex.DecodeString(one.Hex)
		require.NoError(t, err)
		var b worker.Bytes
		require.NoError(t, json.Unmarshal(one.JSON, &b), one.Meaning)
		require.Equal(t, worker.Bytes{ContentType: one.ContentType, Data: data}, b, one.Meaning)
		again, err := json.Marshal(b)
		require.NoError(t, err, one.Meaning)
		require.JSONEq(t, string(one.JSON), string(again), one.Meaning)
	}
	require.NotEmpty(t, v.NoBytes)
	for _, one := range v.NoBytes {
		b := worker.Bytes{ContentType: "a/b"}
		require.ErrorContains(t, json.Unmarshal(one.JSON, &b), "the JSON document is no bytes", one.Meaning)
		require.Equal(t, worker.Bytes{ContentType: "a/b"}, b, one.Meaning)
	}
}
