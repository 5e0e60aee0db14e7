"""Servers with their own benchmark as client. programs/with_server.py starts both and ends the server."""
from harness.host import PROGRAMS, Host, only

DRIVER = PROGRAMS / "with_server.py"
POSTGRESQL = "/usr/lib/postgresql/15/bin"
ANYBODY = "nobody"


def served(stop, place, server, client):
    """A command: the server until `place` accepts connections, the client, a signal to the server."""
    return ["/usr/bin/python3", "-S", "-E", DRIVER, stop, place, *server, "--", "/bin/sh", "-ec", client]


REDIS_CLIENT = r"""
redis-benchmark -s redis.sock -n 4000 -c 20 -q -d 200 -r 5000 -t set,get,lpush,hset,zadd > benchmark.txt
grep -c 'requests per second' benchmark.txt
cli="redis-cli -s redis.sock"
$cli config set maxmemory-policy noeviction; $cli bgsave
until [ "$($cli info persistence | grep -c rdb_bgsave_in_progress:0)" = 1 ]; do sleep 0.1; done
$cli info persistence | grep -E 'rdb_last_bgsave_status'
$cli flushall; $cli memory purge; $cli set key value; $cli get key; $cli eval "return redis.call('dbsize')" 0
$cli config set activedefrag yes || true
$cli debug reload || true; $cli get key
"""


def redis(_scene):
    server = ["/usr/bin/redis-server", "--port", "0", "--unixsocket", "redis.sock", "--save", "",
              "--enable-debug-command", "yes", "--logfile", "redis.log"]
    return served("TERM", "redis.sock", server, REDIS_CLIENT)


NGINX_CONF = """
daemon off; worker_processes 2; error_log {work}/error.log; pid {work}/nginx.pid;
events {{ worker_connections 256; }}
http {{ access_log off; keepalive_requests 1000000; client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi; scgi_temp_path scgi; gzip on; gzip_types *;
  server {{ listen 127.0.0.1:{port}; root {folder}/www; location /again/ {{ proxy_pass http://127.0.0.1:{port}/; }} }} }}
"""


def prepare_nginx(scene):
    scene.write("www/page", "".join(f"line {i}\n" for i in range(3000)))
    scene.write("nginx.conf", NGINX_CONF.format(work=scene.work, folder=scene.folder, port=scene.port))


def nginx(scene):
    client = f"""
page=http://127.0.0.1:{scene.port}
ab -q -n 3000 -c 16 $page/page; ab -q -k -n 3000 -c 16 -H 'Accept-Encoding: gzip' $page/again/page
kill -HUP "$(cat nginx.pid)"; sleep 0.5; ab -q -n 200 -c 2 $page/page
"""
    server = ["/usr/sbin/nginx", "-p", scene.work, "-c", scene.folder / "nginx.conf", "-e", "error.log"]
    return served("QUIT", str(scene.port), server, client)


POSTGRESQL_CLIENT = r"""
export PGHOST=$PWD PGDATABASE=postgres
pgbench -q -i -s 2 && pgbench -n -c 4 -j 2 -t 200 --random-seed=1
psql -XAt -c 'select count(*) from pgbench_history' -c 'set max_parallel_workers_per_gather=2' \
  -c 'set min_parallel_table_scan_size=0' -c 'select count(*), sum(aid::bigint * bid) from pgbench_accounts' \
  -c 'create index on pgbench_accounts (abalance, filler)' -c 'vacuum analyze pgbench_accounts'
"""


def postgresql(_scene):
    start = "cp -a \"$SCENE/data\" . && exec " + POSTGRESQL + "/postgres -D data -k \"$PWD\" -c listen_addresses= -c fsync=off"
    return served("INT", ".s.PGSQL.5432", ["/bin/sh", "-c", start], POSTGRESQL_CLIENT)


MARIADB_CLIENT = r"""
sql="mariadb --no-defaults --socket=$PWD/m.sock -u root -N"
mariadb-slap --no-defaults --socket=$PWD/m.sock -u root --auto-generate-sql --concurrency=4 --number-of-queries=800 \
  --auto-generate-sql-load-type=mixed | grep -c Benchmark
$sql -e "create database d; create table d.t (i int primary key auto_increment, v varchar(100));
  insert into d.t (v) select repeat('x', seq % 100) from d.seq_1_to_20000;
  select count(*), sum(length(v)) from d.t; alter table d.t add index (v); select count(distinct v) from d.t;"
"""


def mariadb(_scene):
    start = ("cp -a \"$SCENE/data\" . && exec /usr/sbin/mariadbd --no-defaults --datadir=\"$PWD/data\" "
             "--socket=\"$PWD/m.sock\" --pid-file=\"$PWD/m.pid\" --skip-networking --skip-grant-tables "
             "--innodb-flush-log-at-trx-commit=0")
    return served("TERM", "m.sock", ["/bin/sh", "-c", start], MARIADB_CLIENT)


def prepare_mariadb(scene):
    scene.prepare("mariadb-install-db", "--no-defaults", f"--datadir={scene.folder}/data", "--skip-test-db",
                  "--auth-root-authentication-method=normal")


def hosts(_options):
    transactions = only("number of transactions actually", "number of failed", "^[0-9|]+$", "^[A-Z ]+$", "^server")
    return [
        Host("servers/redis", redis, ("redis-server", "redis-tools"), user=ANYBODY),
        Host("servers/nginx", nginx, ("nginx-light", "apache2-utils"), prepare_nginx, user=ANYBODY,
             outcome=only("^(Complete|Failed|Non-2xx|Document|Keep-Alive|HTML transferred|server)")),
        Host("servers/postgresql", postgresql, ("postgresql-15",), user="postgres", limit_s=300, outcome=transactions,
             prepare=lambda scene: scene.prepare(f"{POSTGRESQL}/initdb", "-D", scene.folder / "data", "-A", "trust", "-N")),
        Host("servers/mariadb", mariadb, ("mariadb-server", "mariadb-client"), prepare_mariadb, user=ANYBODY, limit_s=300),
    ]
