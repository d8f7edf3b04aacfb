"""vLLM's KV connector over cistern: `--kv-transfer-config` with kv_connector "CisternConnector", kv_connector_module_path
"cistern.vllm", kv_role "kv_both", kv_load_failure_policy "recompute". docs/guides/vllm.md says how.
"""
from .connector import CisternConnector

__all__ = ["CisternConnector"]
