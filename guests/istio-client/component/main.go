// The component: the renderer as exports of WebAssembly.
package main

import _ "mortise/istio-client/bindings/wit_exports"

// Never called: the exports are.
func main() {}
