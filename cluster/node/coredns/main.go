// Command coredns is CoreDNS with only the plugins that the DNS of a cluster without an upstream server needs.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
)

func init() {
	// The order in which the plugins handle a query.
	dnsserver.Directives = []string{"health", "ready", "errors", "cache", "kubernetes"}
}

func main() {
	coremain.Run()
}
