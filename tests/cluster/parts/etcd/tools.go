//go:build tools

// Package parts pins the command that tests/cluster builds.
package parts

import _ "go.etcd.io/etcd/server/v3"
