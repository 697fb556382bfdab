//go:build tools

// Package parts pins the command that tests/cluster builds.
package parts

import _ "helm.sh/helm/v3/cmd/helm"
