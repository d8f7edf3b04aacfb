"""What names an engine's pages besides tokens, without an engine: vllm_identity_test.py SOURCE, in an environment with vLLM."""
import os, pathlib, tempfile, types, unittest

import cistern
from cistern.vllm import identity

import vllm_parts_test as parts


class Weights(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_other_bytes_are_other_weights_and_equal_bytes_the_same(self):
        for name, data in (("a", b"one"), ("b", b"one"), ("c", b"two")):
            (self.folder / name).mkdir()
            (self.folder / name / "model.safetensors").write_bytes(data)
        a, b, c = (identity.weights_digest(str(self.folder / name), None) for name in "abc")
        self.assertEqual(a, b)
        self.assertNotEqual(a, c)
        self.assertEqual(identity.weights_digest(str(self.folder / "a"), None, "v7"), identity.weights_digest(str(self.folder / "c"), None, "v7"))

    def test_big_weights_are_named_by_file_and_a_hubs_by_its_digest(self):
        digest = "ab" * 32
        (self.folder / digest).write_bytes(b"weights")
        (self.folder / "model.safetensors").symlink_to(self.folder / digest)
        self.assertEqual(identity._file_names(str(self.folder), ["model.safetensors"], False), [f"model.safetensors sha256 {digest}"])
        plain = self.folder / "plain.safetensors"
        plain.write_bytes(b"weights")
        before = identity._file_names(str(self.folder), [plain.name], False)
        os.utime(plain, ns=(1, 1))
        self.assertNotEqual(identity._file_names(str(self.folder), [plain.name], False), before)

    def test_configuration_is_named_alike_by_every_process(self):
        def config(thing, dtype="bf16"):
            hf = types.SimpleNamespace(to_dict=lambda: {"layers": 4, "thing": thing})
            return types.SimpleNamespace(
                model_config=types.SimpleNamespace(hf_config=hf, model=str(self.folder), revision=None, dtype=dtype, quantization=None, seed=0),
                cache_config=types.SimpleNamespace(cache_dtype="auto"), load_config=types.SimpleNamespace(load_format="auto"))
        digest = lambda c, epoch="": identity.compute_digest(c, "w", epoch)
        self.assertEqual(digest(config(object())), digest(config(object())))
        base = digest(config(1))
        self.assertEqual(len({base, digest(config(2)), digest(config(1, "fp32")), digest(config(1), "e"), identity.compute_digest(config(1), "v", "")}), 5)

    def test_extras_hold_salt_adapter_and_pictures(self):
        feature = types.SimpleNamespace(mm_position=types.SimpleNamespace(offset=70), identifier="picture")
        lora = types.SimpleNamespace(lora_name="a", lora_path="/nowhere")
        request = types.SimpleNamespace(cache_salt="s", lora_request=lora, mm_features=[feature])
        self.assertEqual(identity.request_extras(request, 64), [
            cistern.Extra(cistern.ExtraKind.SALT, 0, 0, b"s"), cistern.Extra(cistern.ExtraKind.LORA, 0, 0, b"a /nowhere"),
            cistern.Extra(cistern.ExtraKind.CONTENT, 1, 6, b"picture")])


    def test_an_adapter_is_named_by_all_its_files_and_no_more_once_they_change(self):
        def lora(number, folder, **files):
            (self.folder / folder).mkdir(exist_ok=True)
            for name, data in files.items():
                (self.folder / folder / f"adapter_{name}").with_suffix(".json" if name == "config" else ".safetensors").write_bytes(data)
            return types.SimpleNamespace(lora_name=folder, lora_int_id=number, lora_path=str(self.folder / folder))
        self.addCleanup(identity._adapters.clear)
        one, same = lora(1, "one", model=b"w", config=b"alpha 8"), lora(2, "same", model=b"w", config=b"alpha 8")
        scaled = lora(3, "scaled", model=b"w", config=b"alpha 16")
        name = identity.adapter_name(one)
        self.assertEqual(identity.adapter_name(same), name)
        self.assertNotEqual(identity.adapter_name(scaled), name)
        self.assertTrue(identity.can_be_named(parts.request(lora_request=one)))
        lora(1, "one", model=b"v")  # Written over in place: the folder's own time stays.
        os.utime(self.folder / "one/adapter_model.safetensors", ns=(1, 1))
        with self.assertLogs("vllm.cistern") as logged:
            for _ in range(3):
                self.assertFalse(identity.can_be_named(parts.request(lora_request=one)))
        self.assertEqual(len(logged.output), 1)
        again = lora(4, "one")  # Loaded as another one.
        self.assertTrue(identity.can_be_named(parts.request(lora_request=again)))
        self.assertNotEqual(identity.adapter_name(again), name)
        made, _ = parts.side()
        self.assertEqual((made.match(parts.request(lora_request=one), 0), made.counters["requests_left_out"]), ((0, False), 1))


if __name__ == "__main__":
    unittest.main(verbosity=2)
