"""Questions of chapter 15: what a configuration and a file say of shapes, rows and windows."""

from mha_course.quiz import Question, from_mistakes

SECTIONS = {
    "rows_of_k_proj": "1 Llama: eight questions",
    "row_of_a_key": "3 GPT-NeoX: one matrix, and a part that turns",
    "keys_in_the_window": "4 Gemma 2: a scale, a cap and a window",
}


def rows_of_k_proj(rng):
    """How many rows the matrix of the keys has."""
    hidden, heads, kv_heads = 24, 6, 2
    if rng is not None:
        kv_heads, group, width = rng.primes(3, at_least=3)
        hidden, heads = kv_heads * group * width, kv_heads * group
    width = hidden // heads
    answer, wrong = from_mistakes(
        "weight_shapes",
        (hidden, heads, kv_heads, None),
        {
            "as-many-keys-as-queries": f"There are keys for {kv_heads} heads, not for {heads}.",
            "one-head-of-keys": "This is the key of one head.",
            "size-of-a-group": f"{heads // kv_heads} is the number of query heads that share a key.",
        },
        lambda shapes: float(shapes[0]),
    )
    return Question(
        text=f"A configuration says: hidden_size {hidden}, num_attention_heads {heads}, num_key_value_heads "
        f"{kv_heads}. It does not name head_dim. How many rows does k_proj.weight have?",
        answer=answer,
        wrong=wrong,
        because=f"A head is {hidden} / {heads} = {width} wide, and {kv_heads} heads have keys. `nn.Linear` "
        "stores (out, in).",
        section=SECTIONS["rows_of_k_proj"],
    )


def row_of_a_key(rng):
    """The first row of the packed matrix that makes the key of a head."""
    heads, width, h = 6, 8, 1
    if rng is not None:
        heads, width = rng.primes(2, at_least=5)
        h = 1 + rng.below(1 if heads == 5 else 2)  # so that no two answers are equal
    return Question(
        text=f"query_key_value has 3 · {heads * width} rows, for {heads} heads of width {width}. The code "
        f"cuts its result with .view(..., {heads}, {3 * width}), and then with .chunk(3, dim=-1). Which row "
        f"is the first that belongs to the key of head {h}? Rows and heads are counted from 0.",
        answer=float(3 * width * h + width),
        wrong={
            "You count all queries first, then all keys. Here each head has its query, key and value side by "
            "side.": float(heads * width + h * width),
            "This is the first row of the head's query.": float(3 * width * h),
            "This is the first row of the head's value.": float(3 * width * h + 2 * width),
        },
        because=f"Each head has {3 * width} rows: {width} for its query, then {width} for its key, then "
        f"{width} for its value.",
        section=SECTIONS["row_of_a_key"],
    )


def keys_in_the_window(rng):
    """How many keys a query sees, by the line that makes the mask."""
    window, query = (3, 6) if rng is None else (3 + rng.below(6), 20 + rng.below(50))
    return Question(
        text="The mask is causal, and one more line says which keys stay: kv_idx > q_idx - sliding_window. "
        f"sliding_window is {window}. How many keys does query {query} see?",
        answer=float(window),
        wrong={
            f"Key {query - window} is hidden: it is not greater than {query} - {window}.": float(window + 1),
            "The query's own key counts, too.": float(window - 1),
            "These are all keys up to the query's own. Older ones are hidden.": float(query + 1),
        },
        because=f"It sees the keys {query - window + 1} to {query}.",
        section=SECTIONS["keys_in_the_window"],
    )
