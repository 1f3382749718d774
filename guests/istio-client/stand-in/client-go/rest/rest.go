// Package rest has the configuration of a client, which is never used.
package rest

// Config is the configuration of a client.
type Config struct{}
