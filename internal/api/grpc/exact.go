package grpc

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/tasker-go/tasker/internal/transcode"
)

const (
	// codeInexact is the reason of a refusal for a number that a Struct cannot carry.
	codeInexact = "INEXACT_NUMBER"
	// headerLeftOut names the documents that an answer lacks because of such a number.
	headerLeftOut = "tasker-left-out"
	maxLeftOut    = 10 // documents that are named
	maxLeftText   = 200
)

// document is the Struct of a request as JSON.
func document(field string, s *structpb.Struct) (json.RawMessage, error) {
	doc, err := transcode.Sent(field, s)
	if inexact, is := errors.AsType[*transcode.InexactError](err); is {
		return nil, inexactStatus(codes.InvalidArgument, http.StatusBadRequest, inexact.Error()+"; REST takes all numbers")
	}
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	return doc, nil
}

// convert fills a message from the answer to a call, or from the content of one field. What was
// asked to be shown is refused where a Struct cannot carry it. An action has been performed, and
// a list has other entries: their answers leave the document out, and name it in the trailer.
func convert(ctx context.Context, c call, body []byte, into proto.Message, field protoreflect.Name) error {
	operation := cmp.Or(c.operation, visitOf(ctx).route.operation)
	if c.leaves || !strings.HasPrefix(operation, http.MethodGet+" ") {
		left, err := transcode.DecodeLeaving(body, into, field)
		for _, document := range left[:min(len(left), maxLeftOut)] {
			text := strconv.QuoteToASCII(document.Error())
			_ = grpc.SetTrailer(ctx, metadata.Pairs(headerLeftOut, text[:min(len(text), maxLeftText)])) // the rpc goes on
		}
		return err
	}
	err := transcode.DecodeField(body, into, field)
	if inexact, is := errors.AsType[*transcode.InexactError](err); is {
		message := inexact.Error() + "; REST shows it: " + operation
		return inexactStatus(codes.FailedPrecondition, http.StatusNotAcceptable, message)
	}
	return err
}

func inexactStatus(code codes.Code, httpStatus int, message string) error {
	s, err := status.New(code, message).WithDetails(&errdetails.ErrorInfo{Reason: codeInexact, Domain: domain,
		Metadata: map[string]string{"http_status": strconv.Itoa(httpStatus)}})
	if err != nil { // never: it can be encoded
		return status.Error(code, message)
	}
	return s.Err()
}
