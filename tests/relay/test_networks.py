"""Test networks: number and size of parameters, first values, order, and the errors of wrong arguments."""

import numpy as np
import pytest

from nestsmith import relay
from nestsmith.relay import testing as T

COUNTS = [
    ("resnet", {"num_layers": 18}, 99, 11699892),
    ("resnet", {"num_layers": 34}, 179, 21815476),
    ("resnet", {"num_layers": 50}, 259, 25595060),
    ("resnet_3d", {}, 99, 33689652),
    ("mobilenet", {}, 137, 4253864),
    ("mobilenet", {"layout": "NHWC", "image_shape": (224, 224, 3)}, 137, 4254184),
    ("squeezenet", {}, 52, 1248424),
    ("squeezenet", {"version": "1.1"}, 52, 1235496),
    ("inception_v3", {}, 472, 23869000),
    ("densenet", {}, 606, 3568808),
    ("densenet", {"densenet_size": 161}, 806, 10848136),
    ("dcgan", {"batch_size": 1}, 17, 12658176),
    ("dqn", {"batch_size": 1}, 10, 1693362),
    ("mlp", {"batch_size": 1}, 6, 109386),
]


@pytest.mark.parametrize("name,args,arrays,elements", COUNTS)
def test_parameter_counts(name, args, arrays, elements):
    _, params = getattr(T, name).get_workload(**args)
    assert (len(params), sum(p.size for p in params.values())) == (arrays, elements)


@pytest.mark.parametrize("depth,arrays,elements", [(11, 22, 132863336), (16, 32, 138357544), (19, 38, 143667240)])
def test_vgg_counts(depth, arrays, elements):
    f = relay.transform.InferType()(T.vgg.get_net(1, (3, 224, 224), 1000, "float32", depth))
    assert (len(f.params) - 1, sum(p.checked_type.size for p in f.params[1:])) == (arrays, elements)


def test_first_weights():
    nhwc = T.resnet.get_workload(layout="NHWC", image_shape=(224, 224, 3))[1]["conv0_weight"].numpy()
    nchw = T.resnet.get_workload()[1]["conv0_weight"].numpy()
    assert nhwc.shape == (7, 7, 3, 64) and nchw.shape == (64, 3, 7, 7)
    assert abs(nhwc.flat[0] - 0.0046124) < 1e-7 and abs(nchw.flat[0] - 0.0041736) < 1e-7


def test_parameter_order():
    names = [p.name_hint for p in T.resnet.get_net(1, 10, 18).params]
    assert names[:7] == [
        "data",
        "bn_data_gamma",
        "bn_data_beta",
        "bn_data_moving_mean",
        "bn_data_moving_var",
        "conv0_weight",
        "bn0_gamma",
    ]
    assert names[-2:] == ["fc1_weight", "fc1_bias"]
    i = names.index("stage1_unit1_sc_weight")
    assert names[i - 1] == "stage1_unit1_conv2_weight" and names[i + 1] == "stage1_unit2_bn1_gamma"


def test_small_images_choose_three_stages():
    f = T.resnet.get_net(1, 10, 20, (3, 28, 28))
    assert not any(p.name_hint.startswith("stage4") for p in f.params)
    with pytest.raises(ValueError, match="no experiments done on num_layers 19"):
        T.resnet.get_net(1, 10, 19, (3, 28, 28))


@pytest.mark.parametrize(
    "call,what",
    [
        (lambda: T.resnet.get_workload(num_layers=17), "num_layers 17"),
        (lambda: T.resnet.get_workload(layout="HWCN"), "HWCN"),
        (lambda: T.vgg.get_workload(1, num_layers=12), "12"),
        (lambda: T.densenet.get_workload(100), "100"),
    ],
)
def test_wrong_arguments(call, what):
    with pytest.raises(ValueError, match=what):
        call()


def test_squeezenet_version():
    with pytest.raises(AssertionError):
        T.squeezenet.get_workload(version="2.0")


def test_unknown_parameter_names():
    f = relay.Function([x := relay.var("odd", shape=(2,))], relay.nn.relu(x))
    with pytest.raises(ValueError, match="odd"):
        T.create_workload(f)


def test_depthwise_factor():
    w = np.zeros((8, 1, 3, 3), "float32")
    np.random.seed(0)
    T.Xavier()("a_depthwise_weight", w)
    np.random.seed(0)
    assert np.array_equal(w, np.random.uniform(-((3 / 9) ** 0.5), (3 / 9) ** 0.5, w.shape).astype("float32"))
