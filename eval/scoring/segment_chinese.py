"""Finds the words of texts as LongBench's scores do: jieba's cut() with its own dictionary (0.42.1, Debian package
python3-jieba). Exit code 4 where jieba is not installed.

  python3 eval/scoring/segment_chinese.py < TEXTS > WORDS      a JSON string per line; a JSON list of strings per line

The words of a text put together are the text: white space and punctuation are words, too.
"""
import json
import sys
import tempfile
import warnings

warnings.simplefilter("ignore")  # of jieba's own lines, under Python 3.12 and later
try:
    import jieba
except ImportError:
    sys.exit(4)


def main():
    jieba.setLogLevel("ERROR")
    # jieba keeps its dictionary in a file of /tmp that anybody can have written, and trusts it. Here it makes a new one.
    with tempfile.TemporaryDirectory() as folder:
        jieba.dt.tmp_dir = folder
        for line in sys.stdin.buffer:
            print(json.dumps(list(jieba.cut(json.loads(line), cut_all=False))))


if __name__ == "__main__":
    if len(sys.argv) != 1:
        sys.exit(__doc__)
    main()
