"""Stage base_services: storage, certificates and Argo CD work before the stages that need them."""
