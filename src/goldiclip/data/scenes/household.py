"""Pictures of household things, in the drawing language of `vectors`."""

from __future__ import annotations

HOUSEHOLD = {
    "cup": """
        main circle 74 52 18
        hole circle 74 52 10
        main path M14 24 L74 24 L70 78 C68 90 60 94 44 94 C28 94 20 90 18 78 Z
        shade ellipse 44 24 30 8
        coffee ellipse 44 24 24 5.5
    """,
    "teapot": """
        main circle 80 54 17
        hole circle 80 54 9
        main path M30 54 C18 50 20 34 6 30 L4 38 C12 44 12 66 30 74 Z
        main ellipse 51 62 33 28
        shade ellipse 51 36 20 7
        main circle 51 25 6
        shade box 32 86 70 94 3
    """,
    "chair": """
        shade box 24 62 32 96 2
        shade box 66 62 74 96 2
        main box 22 4 30 62 2
        main box 22 6 70 40 6
        main box 62 4 70 62 2
        main box 16 54 82 68 5
        main box 16 64 24 98 2
        main box 74 64 82 98 2
    """,
    "table": """
        shade box 26 36 34 88 2
        shade box 66 36 74 88 2
        main box 8 34 18 96 2
        main box 82 34 92 96 2
        main poly 14 20 86 20 98 38 2 38
        shade box 2 37 98 45 2
    """,
    "lamp": """
        metal box 46 44 54 90
        metal ellipse 50 92 24 6
        gold box 44 46 56 56 4
        main poly 32 6 68 6 88 52 12 52
        ink line 2 68 52 68 66
        gold circle 68 68 3
    """,
    "umbrella": """
        wood line 5 50 44 50 86 56 95 65 93 67 85
        main path M2 52 C4 22 26 6 50 6 C74 6 96 22 98 52 C92 44 78 44 72 52 C66 44 56 44 50 52 C44 44 34 44 28 52
            C22 44 8 44 2 52 Z
        shade path M50 6 C60 18 68 34 72 52 C66 44 56 44 50 52 C44 44 34 44 28 52 C32 34 40 18 50 6 Z
        main path M50 6 C54 18 56 34 50 52 C44 34 46 18 50 6 Z
        wood line 4 50 2 50 8
    """,
    "bottle": """
        wood box 42 2 58 12 2
        main path M42 12 L58 12 L58 30 C62 38 72 42 72 54 L72 90 C72 96 68 98 64 98 L36 98 C32 98 28 96 28 90 L28 54
            C28 42 38 38 42 30 Z
        white box 28 58 72 80
        shade line 3 34 65 66 65
        shade line 3 34 72 56 72
    """,
    "book": """
        shade path M20 4 L84 4 L84 20 L30 20 C22 22 14 18 14 12 C14 6 17 4 20 4 Z
        cream path M24 9 L84 9 L84 19 L24 19 C18 19 18 9 24 9 Z
        main box 14 18 86 97 4
        shade box 14 12 25 97 4
        cream box 36 34 76 58 3
        ink line 3 43 42 69 42
        ink line 3 43 50 61 50
    """,
    "key": """
        main circle 26 50 24
        hole circle 24 50 11
        main box 46 43 97 57 3
        main box 72 52 80 76 2
        main box 87 52 95 72 2
    """,
    "hat": """
        main ellipse 50 76 48 14
        main path M22 74 C22 44 24 18 34 16 C42 14 46 22 50 22 C54 22 58 14 66 16 C76 18 78 44 78 74 C62 80 38 80 22
            74 Z
        shade path M21 62 C38 68 62 68 79 62 L79 74 C62 80 38 80 21 74 Z
    """,
    "boot": """
        main path M26 6 L64 6 L62 54 C72 60 94 62 96 78 L96 88 L24 88 Z
        shade box 23 3 67 16 4
        ink box 22 84 98 96 4
        white line 3 60 40 50 42
        white line 3 61 50 52 53
    """,
    "bag": """
        shade circle 50 32 26
        hole circle 50 32 18
        main path M14 34 L86 34 L94 88 C94 94 90 96 86 96 L14 96 C10 96 6 94 6 88 Z
        shade path M14 34 L86 34 C84 52 66 60 50 60 C34 60 16 52 14 34 Z
        gold box 43 52 57 68 3
    """,
    "guitar": """
        wood line 7 56 46 88 12
        ink line 9 86 16 94 6
        main circle 32 72 25
        main circle 54 52 18
        shade circle 42 62 10
        ink circle 42 62 7
        wood line 6 20 78 30 88
    """,
    "drum": """
        wood line 4.5 16 2 44 26
        wood line 4.5 84 2 56 26
        wood circle 16 4 4.5
        wood circle 84 4 4.5
        main path M8 34 L8 80 C8 100 92 100 92 80 L92 34 Z
        white line 3 9 46 28 86 50 52 72 86 91 46
        shade ellipse 50 34 42 14
        cream ellipse 50 33 37 11
    """,
    "candle": """
        main box 32 38 68 90 3
        tint path M32 38 L68 38 L68 54 C64 60 60 54 58 48 C54 44 50 62 46 62 C42 62 42 48 38 48 C34 50 34 54 32 52 Z
        ink line 3 50 38 50 28
        flame path M50 2 C60 14 62 22 58 28 C54 34 46 34 42 28 C38 22 42 12 50 2 Z
        gold path M50 14 C55 20 56 24 53 28 C51 31 48 31 46 28 C44 24 46 20 50 14 Z
        metal ellipse 50 91 32 7
    """,
    "vase": """
        main path M34 4 L66 4 C64 14 60 20 64 28 C84 38 90 62 78 82 C74 90 68 96 66 97 L34 97 C32 96 26 90 22 82 C10
            62 16 38 36 28 C40 20 36 14 34 4 Z
        shade box 30 2 70 9 3
        shade path M18 54 C36 62 64 62 82 54 C84 58 84 64 82 68 C64 76 36 76 18 68 C16 64 16 58 18 54 Z
    """,
    "bell": """
        gold circle 50 88 9
        main path M50 8 C76 8 76 36 78 54 C80 68 92 72 92 84 L8 84 C8 72 20 68 22 54 C24 36 24 8 50 8 Z
        shade box 6 76 94 86 4
        main circle 50 8 7
        tint path M34 26 C30 38 30 50 29 60 L36 60 C36 48 36 36 40 26 Z
    """,
    "balloon": """
        grey line 2.5 50 76 46 84 54 91 49 99
        main poly 50 70 42 80 58 80
        main ellipse 50 38 32 36
        tint ellipse 36 26 6 10 25
    """,
    "kite": """
        shade line 3.5 50 70 42 80 56 88 46 99
        shade poly 44 80 34 76 36 88
        shade poly 52 90 62 84 62 96
        main poly 50 2 84 34 50 76 16 34
        shade poly 50 2 50 34 16 34
        shade poly 50 34 84 34 50 76
    """,
    "crown": """
        main poly 6 86 4 26 28 52 50 12 72 52 96 26 94 86
        shade box 5 74 95 90 3
        main circle 5 23 6
        main circle 50 9 7
        main circle 95 23 6
        white circle 26 82 4.5
        white circle 50 82 4.5
        white circle 74 82 4.5
    """,
    "gift": """
        main box 10 42 90 96 3
        shade box 5 28 95 46 3
        gold box 43 28 57 96
        gold ellipse 34 18 17 9 25
        gold ellipse 66 18 17 9 -25
        flame circle 50 24 8
    """,
    "envelope": """
        main box 3 18 97 84 4
        shade path M5 22 L50 58 L95 22 C94 19 92 18 90 18 L10 18 C8 18 6 19 5 22 Z
        tint line 2.5 4 22 50 59 96 22
        scarlet circle 50 57 9
    """,
    "pencil": """
        main poly 20 66 68 18 84 34 36 82
        shade poly 26 72 74 24 79 29 31 77
        wafer poly 20 66 36 82 6 96
        ink poly 11 83 17 90 5 97
        metal poly 68 18 72 14 88 30 84 34
        rose poly 72 14 78 8 94 24 88 30
    """,
    "camera": """
        shade box 32 14 66 30 4
        main box 4 26 96 86 7
        ink box 76 20 90 28 2
        metal circle 50 56 25
        ink circle 50 56 20
        glass circle 50 56 12
        white circle 45 51 3.5
        gold box 10 34 24 43 2
    """,
    "shirt": """
        main path M34 10 C42 18 58 18 66 10 L98 28 L88 52 L76 46 L76 94 L24 94 L24 46 L12 52 L2 28 Z
        shade path M34 10 C42 18 58 18 66 10 L72 13 C62 26 38 26 28 13 Z
    """,
    "sock": """
        main path M34 4 L70 4 L70 52 C70 60 62 66 54 72 L36 90 C22 102 2 88 12 72 C20 62 34 58 34 48 Z
        shade box 31 2 73 18 3
        shade path M10 76 C18 74 28 82 30 94 C18 98 6 88 10 76 Z
    """,
    "dress": """
        main path M34 4 L40 4 C42 18 58 18 60 4 L66 4 L68 34 C70 52 88 80 92 92 C70 100 30 100 8 92 C12 80 30 52 32 34 Z
        shade path M31 38 C42 42 58 42 69 38 L71 46 C58 50 42 50 29 46 Z
    """,
    "anchor": """
        main circle 50 14 12
        hole circle 50 14 6
        main box 45 24 55 90 2
        main box 26 32 74 42 4
        main path M50 98 C22 96 6 78 4 54 L22 66 L14 66 C18 78 30 86 45 87 L55 87 C70 86 82 78 86 66 L78 66 L96 54
            C94 78 78 96 50 98 Z
    """,
}
