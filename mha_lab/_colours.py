"""The grammar of colour: one source for the pictures of ``plot``, the explorables and their stills.

A query, a key and a value each have a colour and a shape, in pictures and in words. A weight has the ramp
from the page's ground to one colour, and a number with a sign has two such ramps. What is chosen, focused
or none of these is grey, "accent". Grey with hatching is hidden by a mask. The website's accent is this
grey, too.
"""

LIGHT = {
    "query": "#c2410c", "key": "#9747cf", "value": "#007a5a", "weight": "#0b3f8f",
    "minus": "#8a6100", "plus": "#00798c", "accent": "#4d5663",
}  # fmt: skip
DARK = {
    "query": "#f58549", "key": "#b07cf5", "value": "#4df0c0", "weight": "#9ccbff",
    "minus": "#d9a93a", "plus": "#45c3d6", "accent": "#b4bcc8",
}  # fmt: skip
SHAPES = {"query": "●", "key": "■", "value": "▲"}
# The colours of Okabe and Ito, which stay apart for the colour-blind; black text is readable on all six.
TOKENS = ("#56b4e9", "#e69f00", "#009e73", "#f0e442", "#cc79a7", "#d55e00")
GROUND = "#ffffff"  # of stills; on a dark page, the website's style changes their colours
