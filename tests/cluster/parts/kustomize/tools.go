//go:build tools

// Package parts pins the command that tests/cluster builds.
package parts

import _ "sigs.k8s.io/kustomize/kustomize/v5"
