//go:build tools

// Package parts pins the command that tests/cluster builds.
package parts

import _ "github.com/k3s-io/helm-controller"
