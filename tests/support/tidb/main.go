// A small TiDB server over the embedded "unistore" storage, for tests on one
// machine: it listens on loopback only and keeps its data under -path.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/pingcap/tidb/pkg/config"
	"github.com/pingcap/tidb/pkg/ddl"
	ddlutil "github.com/pingcap/tidb/pkg/ddl/util"
	"github.com/pingcap/tidb/pkg/executor"
	"github.com/pingcap/tidb/pkg/executor/mppcoordmanager"
	"github.com/pingcap/tidb/pkg/extension"
	_ "github.com/pingcap/tidb/pkg/planner/core"
	"github.com/pingcap/tidb/pkg/resourcemanager"
	"github.com/pingcap/tidb/pkg/server"
	"github.com/pingcap/tidb/pkg/session"
	kvstore "github.com/pingcap/tidb/pkg/store"
	"github.com/pingcap/tidb/pkg/store/mockstore"
	"github.com/pingcap/tidb/pkg/util/disk"
	"github.com/pingcap/tidb/pkg/util/logutil"
	"github.com/pingcap/tidb/pkg/util/memory"
	"github.com/pingcap/tidb/pkg/util/metricsutil"
)

func must(what string, err error) {
	if err != nil {
		log.Fatalf("%s: %v", what, err)
	}
}

func main() {
	port := flag.Uint("P", 14000, "MySQL port on 127.0.0.1")
	status := flag.Uint("status", 14001, "status port on 127.0.0.1")
	path := flag.String("path", "", "data folder; empty means memory only")
	level := flag.String("L", "warn", "log level")
	logFile := flag.String("log-file", "", "log file; empty means stderr")
	flag.Parse()
	if *path != "" { // a relative path would be read as the URL's host
		abs, err := filepath.Abs(*path)
		must("path", err)
		*path = abs
	}

	cfg := config.NewConfig()
	cfg.Host, cfg.AdvertiseAddress, cfg.Port = "127.0.0.1", "127.0.0.1", *port
	cfg.Socket = ""
	cfg.Status.StatusHost, cfg.Status.StatusPort = "127.0.0.1", *status // the list of the cluster's connections asks there
	cfg.Store, cfg.Path = "unistore", *path
	cfg.Log.Level, cfg.Log.File.Filename = *level, *logFile
	tmp, err := os.MkdirTemp("", "tidbtmp")
	must("temp", err)
	defer os.RemoveAll(tmp)
	cfg.TempDir, cfg.TempStoragePath = tmp, filepath.Join(tmp, "spill")
	config.StoreGlobalConfig(cfg)
	must("log", logutil.InitLogger(cfg.Log.ToLogConfig()))

	must("store driver", kvstore.Register("unistore", mockstore.EmbedUnistoreDriver{}))
	must("metrics", metricsutil.RegisterMetrics())
	must("temp dir", disk.InitializeTempDir())
	memory.InitMemoryHook()
	must("extensions", extension.Setup())
	ddlutil.EmulatorGCDisable() // it would empty a dropped table at once, and RECOVER would bring back no row
	session.SetSchemaLease(config.DefSchemaLease)
	executor.Start()
	resourcemanager.InstanceResourceManager.Start()

	storage, err := kvstore.New(fmt.Sprintf("%s://%s", cfg.Store, cfg.Path))
	must("open store", err)
	mppcoordmanager.InstanceMPPCoordinatorManager.Run()
	must("ddl owner", ddl.StartOwnerManager(context.Background(), storage))
	dom, err := session.BootstrapSession(storage)
	must("bootstrap", err)
	srv, err := server.NewServer(cfg, server.NewTiDBDriver(storage))
	must("server", err)
	srv.SetDomain(dom)
	dom.InfoSyncer().SetSessionManager(srv)
	go dom.ExpensiveQueryHandle().SetSessionManager(srv).Run()

	sig := make(chan os.Signal, 1)
	signal.Notify(sig, syscall.SIGINT, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		<-sig
		srv.Close()
		dom.Close()
		ddl.CloseOwnerManager()
		_ = storage.Close()
		close(done)
	}()
	must("run", srv.Run(dom))
	<-done
}
