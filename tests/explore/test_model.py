"""The language model in the browser: its numbers are PyTorch's, whatever one types, silences and patches."""

import pytest
import torch

from bench import examples
from bench.browser import PHONE, needs_chromium, show
from mha_course import explore
from mha_course.chapters import story_model
from mha_course.chapters.language_model import Decoder, ablate_head, next_token_loss
from mha_course.explore._model import ACTS, MAX_BYTES, forward, packed, rounded

START = "Ada amused Ben because"
SHE, HE = story_model.NUMBER["she"], story_model.NUMBER["he"]
COMPUTE = """([tokens, acts]) => {
  const get = (name) => model.get(name), { heads } = window.net ??= module.unpack({
    matrices: get("_matrices"), numbers: get("_numbers"), shape: get("_shape"), words: 52 });
  const found = module.compute(net, tokens, acts, window.old), { steps } = window.old = found;
  const split = (x, h) => [...x.slice(h * x.length / heads, (h + 1) * x.length / heads)];
  const layers = (name, of) => steps[0].layers.map((_, l) => Array.from({ length: heads }, (_, h) =>
    steps.map((step) => of(step.layers[l][name], h))));
  const lower = (rows, h) => [...rows[h], ...Array(tokens.length - rows[h].length).fill(0)];
  const vectors = ["query", "key", "value", "output"].map((name) => [name, layers(name, split)]);
  const [embeddings, logits] = ["embedding", "logits"].map((name) => steps.map((step) => [...step[name]]));
  return { ...Object.fromEntries(vectors), embeddings, logits,
    scores: layers("scores", lower), weights: layers("weights", lower), loss: module.loss(found) };
}"""


def some(seed):
    """A random text, and something done to random heads."""
    dice = torch.Generator().manual_seed(seed)
    n = 2 + int(torch.randint(29, (), generator=dice))
    tokens = [0, *torch.randint(1, 52, (n - 1,), generator=dice).tolist()]
    acts = [ACTS[i] for i in torch.randint(4, (8,), generator=dice)] if seed % 2 else [""] * 8
    return tokens, acts


@pytest.mark.browser
@needs_chromium
def test_every_tensor_in_the_browser_is_pytorchs(browser):
    """On 50 random texts, every second one with changed heads; a page keeps what it can of the last."""
    words = ["\n", *map(str, range(51))]
    alone = Decoder(52, d_model=12, num_heads=4, max_length=30, network=False)  # attention-only
    torch.nn.init.normal_(alone.blocks[0].attention.v_proj.bias)
    for picture, seeds in ((examples.model(), range(50)), (explore.model(alone, words), range(4))):
        page = show(browser, picture)
        for seed in seeds:
            compare(page, picture, *some(seed))
        page.close()


def compare(page, picture, tokens, acts):
    """Every tensor of the page, and of the package."""
    expected = forward(picture._model, tokens, acts)
    expected["output"] = expected.pop("outputs")
    expected["scores"] = expected["scores"].tril()
    expected["loss"] = next_token_loss(expected["logits"][None], torch.tensor([tokens]))
    for again in (tokens, tokens[: len(tokens) // 2], tokens):  # shorter, then with the cache
        found = page.evaluate(COMPUTE, [again, acts])
    found = {name: torch.tensor(value) for name, value in found.items()}
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)


@torch.no_grad()
def test_the_same_tensors_in_python_are_those_of_the_decoder():
    model = story_model.load()
    for seed in range(10):
        tokens, acts = some(seed)
        logits, weights = model(torch.tensor([tokens]), need_weights=True)
        found = forward(model, tokens, [""] * 8)
        torch.testing.assert_close((found["logits"], found["weights"]), (logits[0], weights[:, 0]))
        less = ablate_head(ablate_head(model, 0, seed % 4), 1, 3 - seed % 4)
        silent = ["silent" if i in (seed % 4, 7 - seed % 4) else "" for i in range(8)]
        torch.testing.assert_close(
            forward(model, tokens, silent)["logits"], less(torch.tensor([tokens]))[0][0]
        )
        found = forward(model, tokens, acts)["weights"].flatten(0, 1)
        n = len(tokens)
        for i, act in enumerate(acts):
            for row in range(n):
                if act == "uniform":
                    assert found[i, row].tolist() == pytest.approx(
                        [1 / (row + 1)] * (row + 1) + [0] * (n - 1 - row)
                    )
                if act == "previous":
                    assert found[i, row].nonzero().flatten().tolist() == [max(row - 1, 0)]


@torch.no_grad()
def test_the_rounded_model_is_small_and_knows_what_the_shipped_one_knows():
    model, tokens = story_model.load(), story_model.sample(200, 7)[0]
    small = rounded(model)
    assert sum(map(len, packed(small))) < MAX_BYTES
    losses = [next_token_loss(each(tokens)[0], tokens).item() for each in (model, small)]
    assert losses[1] == pytest.approx(losses[0], abs=1e-3)
    assert [story_model.probe(small, task)["model"] for task in ("sense", "pronoun")] == [1, 1]
    for matrix in small.parameters():
        if matrix.ndim == 2:
            assert all(len(row.unique()) <= 255 for row in matrix)


def test_the_state_comes_back():
    picture = explore.model(story_model.load(), story_model, START)
    assert (picture.text, picture.silenced, picture.patched) == (START, [], {})
    learned = picture.weights
    picture.silenced, picture.patched = [(1, 0), (0, 2)], {(1, 3): "uniform"}
    assert (picture.silenced, picture.patched) == ([(0, 2), (1, 0)], {(1, 3): "uniform"})
    assert picture.weights[1, 3, 4].tolist() == pytest.approx([0.2] * 5)
    torch.testing.assert_close(picture.weights[0], learned[0])
    picture.silenced = []
    assert picture.patched == {(1, 3): "uniform"}
    picture._tokens, picture._acts = [0, 1], ["", "previous", *[""] * 6]  # what the browser sends
    assert (picture.text, picture.patched, picture.weights.shape) == (
        "Ada",
        {(0, 1): "previous"},
        (2, 4, 2, 2),
    )
    picture.text = "in the cave the bat slept.  Ada"
    assert picture.text == "in the cave the bat slept. Ada"
    assert "reads “in the cave the bat slept. Ada”" in picture.describe()
    mine = explore.model(
        Decoder(3, d_model=8, max_length=5, positions="sinusoidal"), ["\n", "a b", "a"], "a a b"
    )
    assert mine._tokens == [0, 2, 1]  # the longest word that fits


def probability(picture, token):
    return forward(picture._model, picture._tokens, picture._acts)["logits"][-1].softmax(-1)[token].item()


def bars(page):
    """The words with their probabilities, now and as learned."""
    rows = [row.split() for row in page.locator(".bars tbody tr").all_inner_texts()]
    return {row[0]: [float(x) for x in row[1:]] for row in rows}


def value(page, name):
    return page.evaluate("(name) => model.get(name)", name)


@pytest.mark.browser
@needs_chromium
def test_a_text_is_typed_with_completions(shown):
    page = shown(examples.model(), dead=True)
    box, options = page.locator("textarea"), page.locator(".words [role=option]")
    box.fill("")
    assert value(page, "_tokens") == [0]
    box.press_sequentially("ben am")
    assert options.all_inner_texts() == ["amused"]
    assert value(page, "_tokens") == [0, story_model.NUMBER["Ben"]]
    box.press("Enter")
    box.press_sequentially("a")
    assert options.all_inner_texts() == ["Ada", "ate", "amused", "annoyed", "admired"]
    for key in ("ArrowDown", "ArrowUp", "ArrowUp", "ArrowUp"):
        box.press(key)
    assert box.get_attribute("aria-activedescendant") == options.nth(3).get_attribute("id")
    box.press("Escape")
    assert options.count() == 0
    box.press_sequentially("da because xq he")
    assert (
        page.locator(".problem").inner_text()
        == "The model does not know “xq”, so it reads only the words before it."
    )
    assert value(page, "_tokens") == story_model.encode("Ben amused Ada because").tolist()
    box.fill("the " * 40)
    assert "at most 30 tokens" in page.locator(".problem").inner_text()
    assert len(value(page, "_tokens")) == 30
    box.fill(START)
    assert page.locator(".problem").inner_text() == ""
    page.get_by_role("button", name="Choose a word").click()
    assert options.count() == 51
    options.get_by_text("she", exact=True).click()
    assert value(page, "_tokens")[-1] == SHE
    page.get_by_role("button", name="Delete the last word").click()
    assert box.input_value() == START + " "


@pytest.mark.browser
@needs_chromium
def test_heads_are_silenced_and_patched_and_the_loss_follows(shown):
    page, picture = shown(examples.model(), dead=True), examples.model()
    assert bars(page)["she"] == [round(probability(picture, SHE), 2)]
    page.get_by_role("button", name="silence layer 0, head 2").click()
    picture.silenced = [(0, 2)]
    assert value(page, "_acts") == picture._acts
    assert bars(page)["she"] == [round(probability(picture, SHE), 2), 1.0]
    assert "layer 0, head 2: silent. Next word: she 0.42" in page.get_by_role("status").first.inner_text()
    assert page.locator(".thumb.silent").count() == 1
    page.get_by_role("button", name="enlarge layer 1, head 0").click()
    page.get_by_label("uniform weights").check()
    picture.patched = {(1, 0): "uniform"}
    assert value(page, "_acts") == picture._acts
    assert page.locator(".line span:visible").all_inner_texts() == ["0.20"] * 5
    losses = [
        next_token_loss(
            forward(picture._model, picture._tokens, acts)["logits"][None], torch.tensor([picture._tokens])
        )
        for acts in (picture._acts, [""] * 8)
    ]
    said = f"Loss on this text: {losses[0]:.2f} nats per token. With all heads "
    said += f"as learned, it is {losses[1]:.2f}."
    assert page.get_by_text("Loss on this text").last.inner_text() == said
    page.get_by_role("button", name="All heads as learned").click()
    assert value(page, "_acts") == [""] * 8
    page.locator(".line button").nth(3).focus()
    page.keyboard.press("ArrowLeft")
    assert value(page, "_row") == 2
    assert page.locator(".line span:visible").all_inner_texts()[3:] == ["hidden"] * 2
    shown_row = [
        f"{x:.2f}"
        for x in picture._model(torch.tensor([picture._tokens]), need_weights=True)[1][1, 0, 0, 2, :3]
    ]
    assert page.locator(".line span:visible").all_inner_texts()[:3] == shown_row


@pytest.mark.browser
@needs_chromium
def test_words_are_written_with_a_cache_that_grows(shown):
    page = shown(examples.model(), dead=True)
    page.get_by_label("temperature").fill("0")
    page.get_by_role("button", name="Write one word").click()
    assert value(page, "_tokens") == [*story_model.encode(START).tolist(), SHE]
    said = page.get_by_text("The cache holds").inner_text()
    assert "6 tokens in 2 layers: 1,536 numbers" in said
    assert said.endswith("Computed just now (in the frame): 1. Kept from before: 5.")
    page.get_by_role("button", name="silence layer 1, head 0").click()
    assert "(in the frame): 6. Kept from before: 0." in page.get_by_text("The cache holds").inner_text()
    for label in ("Write up to 30", "Delete", "Write up to 30"):
        page.get_by_role("button", name=label).click()
        page.wait_for_function("model.get('_tokens').length === 30 || model.get('_tokens').length === 29")
    page.wait_for_function("model.get('_tokens').length === 30")
    model = ablate_head(examples.model()._model, 1, 0)
    tokens = [*story_model.encode(START).tolist(), SHE]
    while len(tokens) < 30:
        tokens.append(int(model(torch.tensor([tokens]))[0][0, -1].argmax()))
    assert value(page, "_tokens") == tokens
    for label in ("Write one word", "Write up to 30 tokens"):
        assert page.get_by_role("button", name=label).is_disabled()


@pytest.mark.browser
@needs_chromium
def test_a_word_is_drawn_from_the_distribution_at_a_temperature(browser):
    page = show(browser, examples.model())
    logits = torch.randn(52)
    for temperature in (0.3, 1.0, 4.0):
        p = page.evaluate("([logits, t]) => module.probabilities(logits, t)", [logits.tolist(), temperature])
        torch.testing.assert_close(torch.tensor(p), torch.softmax(logits / temperature, 0))
    p, even = [0.5, 0.1, 0.0, 0.4], [(i + 0.5) / 1000 for i in range(1000)]
    drawn = page.evaluate("([p, all]) => all.map((x) => module.drawn(p, x))", [p, even])
    assert [drawn.count(i) for i in range(4)] == [0, 200, 0, 800]  # token 0 starts a text
    page.close()


def press(page, name):
    page.get_by_role("button", name=name, exact=True).click(force=True)  # also one that is disabled


@pytest.mark.browser
@needs_chromium
def test_what_the_model_cannot_read_is_named_kept_and_deleted(shown):
    """Whatever is pressed; also an unknown word alone, and a word that was not typed to its end."""
    page = shown(examples.model(), dead=True)
    box, problem = page.locator("textarea"), page.locator(".problem")
    for typed, tokens, unknown in (
        ("Ada amused Ben zebra because", ["Ada", "amused", "Ben"], "zebra"),
        ("zebra", [], "zebra"),
        ("Ada amused be", ["Ada", "amused"], "be"),
    ):
        box.fill(typed)
        for name in ("Write one word", "Write up to 30", "add "):
            page.get_by_role("button", name=name).first.click(force=True)
            page.wait_for_timeout(50)
            assert box.input_value() == typed
            assert f"does not know “{unknown}”" in problem.inner_text()
            assert value(page, "_tokens") == [0, *map(story_model.NUMBER.get, tokens)]
            assert "write again when it reads all words" in page.get_by_role("status").first.inner_text()
        for word in reversed(typed.split()):
            assert box.input_value().split()[-1] == word
            press(page, "Delete the last word")
        assert (box.input_value(), value(page, "_tokens"), problem.inner_text()) == ("", [0], "")
    box.fill("zebra")
    page.get_by_role("button", name="Reset").click()
    assert (box.input_value(), problem.inner_text()) == (START + " ", "")
    box.fill("the " * 40)
    press(page, "Delete the last word")
    assert box.input_value().split() == ["the"] * 39
    box.fill(START)
    press(page, "add she")
    assert box.input_value() == START + " she "


@pytest.mark.browser
@needs_chromium
def test_a_disabled_button_looks_so_says_why_and_keeps_the_focus(shown):
    page = shown(examples.model(), dead=True)
    why = page.locator(".why").first

    def look(name):
        button = page.get_by_role("button", name=name, exact=True)
        style = "(one) => [getComputedStyle(one).opacity, getComputedStyle(one).borderStyle]"
        return button.is_disabled(), tuple(button.evaluate(style))

    off, ready = (True, ("0.5", "dashed")), (False, ("1", "solid"))
    names = ["Write one word", "Write up to 30 tokens", "Delete the last word", "All heads as learned"]
    assert [look(name) for name in names] == [ready, ready, ready, off]
    assert page.get_by_text("No head is changed.").is_visible()
    on = page.get_by_role("button", name="Write up to 30 tokens")
    on.press("Enter")
    page.wait_for_function("model.get('_tokens').length === 30")
    assert page.evaluate("document.activeElement.textContent") == "Write up to 30 tokens"
    assert [look(name) for name in names[:3]] == [off, off, ready]
    reason = "The text has 30 tokens, the most that the model reads. Delete a word to go on."
    assert why.inner_text() == reason
    before = value(page, "_tokens")
    page.keyboard.press("Enter")
    assert page.get_by_role("status").first.inner_text() == reason
    page.locator(".bars button").first.click(force=True)
    assert value(page, "_tokens") == before
    page.locator("textarea").fill("")
    assert [look(name) for name in names[:3]] == [ready, ready, off]
    assert why.inner_text() == "There is no word to delete."
    press(page, "Delete the last word")
    assert page.get_by_role("status").first.inner_text() == "There is no word to delete."
    press(page, "silence layer 0, head 2")
    assert look(names[3]) == ready
    assert not page.get_by_text("No head is changed.").is_visible()


@pytest.mark.browser
@needs_chromium
def test_a_temperature_has_a_range_and_another_one_is_refused_in_words(shown):
    page = shown(examples.model(), dead=True)
    heat = page.get_by_label("temperature (0 to 5)")
    said = page.get_by_text("A temperature is a number")
    for typed, kept in {"100": 5, "2": 2, "-1": 0, "0.5": 0.5, "abc": 0.5}.items():
        heat.press("ControlOrMeta+a")
        heat.press_sequentially(typed)  # letters: a browser leaves the field empty
        heat.press("Enter" if typed != "abc" else "Delete")
        heat.press("Tab")
        assert (value(page, "_temperature"), float(heat.input_value())) == (kept, kept)
        wrong = typed in ("100", "-1", "abc")
        assert said.count() == wrong
        assert not wrong or said.inner_text() == f"A temperature is a number from 0 to 5. Now it is {kept}."


@pytest.mark.browser
@needs_chromium
def test_what_is_spoken_is_never_of_another_state(shown):
    """After a change it is empty or new; what was typed is spoken of after a pause."""
    page = shown(examples.model(), dead=True)
    spoken, box = page.get_by_role("status").first, page.locator("textarea")
    press(page, "silence layer 0, head 2")
    assert "silent. Next word: she 0.42" in spoken.inner_text()
    box.fill("in the cave")
    assert spoken.inner_text() == ""
    page.wait_for_function("(spoken) => spoken.innerText !== ''", arg=spoken.element_handle())
    probable = bars(page)
    first = next(iter(probable))
    assert f"Next word: {first} {probable[first][0]:.2f}" in spoken.inner_text()
    page.locator(".line button").first.hover()
    assert "Next word" in spoken.inner_text()  # it is not about the query token
    page.evaluate("model.set('_acts', Array(8).fill(''))")  # from Python
    assert spoken.inner_text() == ""


@pytest.mark.browser
@needs_chromium
@pytest.mark.parametrize("device", [{"viewport": {"width": 1000, "height": 900}}, PHONE])
def test_the_words_to_choose_cover_nothing_and_can_be_closed(shown, device):
    """By the button and by Escape, with a mouse, a finger and keys."""
    page = shown(examples.model(), device=device)
    options, button = page.locator(".words [role=option]"), page.locator("button").first
    act = button.tap if "has_touch" in device else button.click
    for _ in range(3):
        act()
        assert (options.count(), button.inner_text()) == (51, "Close the words")
        assert button.get_attribute("aria-expanded") == "true"
        covered = page.locator(".mha button:visible").evaluate_all("""(all) => all.filter((one) => {
          const [a, b] = [one, document.querySelector(".words")].map((each) => each.getBoundingClientRect());
          return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
        }).length""")
        assert covered == 0
        act()
        assert (page.locator(".words").is_visible(), button.inner_text()) == (False, "Choose a word")
    button.focus()
    page.keyboard.press("Enter")
    assert options.count() == 51
    page.keyboard.press("Escape")
    assert not page.locator(".words").is_visible()


@pytest.mark.browser
@needs_chromium
def test_a_long_text_is_shown_whole_and_its_tokens_can_be_scrolled_by_buttons(shown):
    page = shown(examples.model(), device=PHONE)
    box, strip = page.locator("textarea"), page.locator(".sentence")
    later, earlier = (page.get_by_role("button", name=f"{name} tokens") for name in ("later", "earlier"))
    assert not later.is_visible()
    page.evaluate("model.set('_tokens', [0, ...Array(29).fill(model.get('_words').indexOf('because'))])")
    assert box.evaluate("(box) => box.scrollHeight - box.clientHeight") <= 0
    assert (later.is_disabled(), earlier.is_disabled()) == (True, False)
    for _ in range(400):
        if earlier.is_disabled():
            break
        earlier.click(force=True)
        page.wait_for_timeout(30)
    assert (strip.evaluate("(strip) => strip.scrollLeft"), later.is_disabled()) == (0, False)
    page.set_viewport_size({"width": 320, "height": 667})
    page.wait_for_function("(box) => box.scrollHeight <= box.clientHeight", arg=box.element_handle())
    page.evaluate("model.set('_tokens', [0])")
    assert not earlier.is_visible()
