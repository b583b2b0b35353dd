# The HEALTHCHECK of the image: ends with 0 while the bridge of this container answers /healthz with 200.
# It is bash alone, since it runs every ten seconds: to start Python for it takes more than a bridge without work does.
address=$(<"$BRIDGE_WATCH_ADDRESS_FILE") || exit 1
host=${address%:*} host=${host#[} host=${host%]}
exec 3<>"/dev/tcp/$host/${address##*:}" || exit 1
printf 'GET /healthz HTTP/1.0\r\n\r\n' >&3
read -r -t 4 _ status _ <&3
[ "$status" = 200 ]
