//go:build tools

// Package parts pins the command that tests/cluster builds.
package parts

import _ "github.com/argoproj/argo-cd/v2/cmd"
