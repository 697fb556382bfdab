#!/bin/sh
# Stand-in for klipper-helm, the image of helm-controller's Jobs: the same environment in, the same decisions, the real helm.
# In place of a repository it has charts in /charts, of one version each.
set -eu
export HELM_CACHE_HOME=/tmp/helm HELM_CONFIG_HOME=/tmp/helm HELM_DATA_HOME=/tmp/helm
action=$1
shift
say() { echo "$*" | tee -a /dev/termination-log; }
run() {
    echo "+ helm $*"
    helm "$@" >/tmp/said 2>&1 || { cat /tmp/said; tail -c 2000 /tmp/said >/dev/termination-log; exit 1; }
    cat /tmp/said
}
if [ "$action" = delete ]; then
    helm status "$NAME" --namespace "$TARGET_NAMESPACE" >/dev/null 2>&1 || exit 0
    run uninstall "$NAME" --namespace "$TARGET_NAMESPACE" --wait
    exit 0
fi
if [ -s "/chart/$NAME.tgz.base64" ]; then
    base64 -d "/chart/$NAME.tgz.base64" >/tmp/chart.tgz
    chart=/tmp/chart.tgz
else
    chart=/charts/${CHART##*/}
    grep -qs "^version: *\"\{0,1\}${VERSION:-.*}\"\{0,1\}\$" "$chart/Chart.yaml" || {
        say "Error: chart \"${CHART##*/}\" version \"$VERSION\" not found in $REPO repository"
        exit 1
    }
fi
set -- "$@" --labels "helmcharts.helm.cattle.io/configHash=$CONFIG_HASH"
for values in /config/*.yaml; do
    [ -e "$values" ] && set -- "$@" --values "$values"
done
[ -z "${TIMEOUT:-}" ] || set -- "$@" --timeout "$TIMEOUT"
status=$(helm list --all --filter "^$NAME\$" --namespace "$TARGET_NAMESPACE" --output json | sed -n 's/.*"status":"\([a-z-]*\)".*/\1/p')
case $status in
    "") run install "$@" "$NAME" "$chart" ;;
    deployed) run upgrade "$@" "$NAME" "$chart" ;;
    *)
        if [ "${FAILURE_POLICY:-reinstall}" = abort ]; then
            say "Release status is '$status' and failure policy is 'abort'; waiting for operator intervention"
            exit 1
        fi
        [ "${FAILURE_POLICY:-reinstall}" = retry ] || run uninstall "$NAME" --namespace "$TARGET_NAMESPACE" --wait
        run upgrade --install "$@" "$NAME" "$chart"
        ;;
esac
