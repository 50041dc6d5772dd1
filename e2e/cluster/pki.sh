# shellcheck shell=bash
# Sourced where identities are made: a CA, certificates and kubeconfigs, all in the current directory.
KEY=(-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes)
ca() { openssl req -x509 "${KEY[@]}" -keyout ca.key -out ca.crt -days 30 -subj "/CN=esfleet-$1"; }
cert() { # cert NAME SUBJECT [EXTENSIONS]
  openssl req "${KEY[@]}" -keyout "$1.key" -out "$1.csr" -subj "$2"
  openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 -out "$1.crt" -extfile <(echo "${3:-}")
}
kubeconfig() { # kubeconfig FILE NAME SERVER TOKEN
  (umask 077; cat > "$1.new") <<J
apiVersion: v1
kind: Config
current-context: $2
clusters: [{name: $2, cluster: {server: "$3", certificate-authority-data: $(base64 -w0 ca.crt)}}]
users: [{name: $2, user: {token: $4}}]
contexts: [{name: $2, context: {cluster: $2, user: $2}}]
J
  mv "$1.new" "$1"
}
