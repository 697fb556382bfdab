//go:build tools

// Package parts pins the commands that tests/cluster builds.
package parts

import (
	_ "go.etcd.io/etcd/etcdutl/v3"
	_ "go.etcd.io/etcd/server/v3"
)
