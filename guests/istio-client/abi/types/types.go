// Package types has the types of WIT that Go lacks, under the names that generated bindings use.
package types

// Option is a value that may be absent.
type Option[T any] struct {
	value   T
	present bool
}

// None returns an absent value.
func None[T any]() Option[T] {
	return Option[T]{}
}

// Some returns a present value.
func Some[T any](value T) Option[T] {
	return Option[T]{value: value, present: true}
}

// Get returns the value, and false if it is absent.
func (o Option[T]) Get() (T, bool) {
	return o.value, o.present
}

// Tuple2 is a pair.
type Tuple2[A, B any] struct {
	F0 A
	F1 B
}

// The tags of a Result.
const (
	ResultOk  = 0
	ResultErr = 1
)

// Result is a value or an error.
type Result[T, E any] struct {
	tag   uint8
	value T
	err   E
}

// Ok returns a value.
func Ok[T, E any](value T) Result[T, E] {
	return Result[T, E]{tag: ResultOk, value: value}
}

// Err returns an error.
func Err[T, E any](err E) Result[T, E] {
	return Result[T, E]{tag: ResultErr, err: err}
}

// Tag returns ResultOk or ResultErr.
func (r Result[T, E]) Tag() uint8 {
	return r.tag
}

// Ok returns the value of a Result that has the tag ResultOk.
func (r Result[T, E]) Ok() T {
	return r.value
}

// Err returns the error of a Result that has the tag ResultErr.
func (r Result[T, E]) Err() E {
	return r.err
}
