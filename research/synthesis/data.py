"""The public data sets as cells of columns, cut at public edges. A patient is one row."""

import csv
import gzip
import io
import os
import zipfile
from dataclasses import dataclass

import numpy as np

R = os.environ["WARDROUND_DATA"].rstrip("/") + "/"


@dataclass
class T:
    name: str
    names: list
    labels: list
    codes: np.ndarray
    outcome: int
    ordered: list

    @property
    def sizes(self):
        return [len(l) for l in self.labels]


def num(x, edges, miss=("?", "")):
    v = np.array([np.nan if s in miss else float(s) for s in x])
    return (
        np.where(np.isnan(v), len(edges) + 1, np.searchsorted(edges, v, side="right")),
        [str(e) for e in range(len(edges) + 2)],
        True,
    )


def cat(x, cats, miss=("?", "")):
    d = {c: i for i, c in enumerate(cats)}
    k = len(cats)
    return np.array([d.get(s, k + 1 if s in miss else k) for s in x]), list(cats) + ["other", "missing"], False


def make(name, rows, spec, outcome):
    cols = list(zip(*rows))
    names = []
    labels = []
    codes = []
    o = []
    for n, i, kind, arg in spec:
        c, l, od = kind(cols[i], arg)
        names.append(n)
        labels.append(l)
        codes.append(c)
        o.append(od)
    return T(name, names, labels, np.array(codes).T.astype(np.int64), names.index(outcome), o)


AW = ["Private", "Self-emp-not-inc", "Self-emp-inc", "Federal-gov", "Local-gov", "State-gov", "Without-pay", "Never-worked"]
AE = ["Bachelors", "Some-college", "11th", "HS-grad", "Prof-school", "Assoc-acdm", "Assoc-voc", "9th", "7th-8th", "12th", "Masters", "1st-4th", "10th", "Doctorate", "5th-6th", "Preschool"]
AM = ["Married-civ-spouse", "Divorced", "Never-married", "Separated", "Widowed", "Married-spouse-absent", "Married-AF-spouse"]
AO = ["Tech-support", "Craft-repair", "Other-service", "Sales", "Exec-managerial", "Prof-specialty", "Handlers-cleaners", "Machine-op-inspct", "Adm-clerical", "Farming-fishing", "Transport-moving", "Priv-house-serv", "Protective-serv", "Armed-Forces"]
AR = ["Wife", "Own-child", "Husband", "Not-in-family", "Other-relative", "Unmarried"]
AC = ["White", "Asian-Pac-Islander", "Amer-Indian-Eskimo", "Other", "Black"]
AN = ["United-States", "Cambodia", "England", "Puerto-Rico", "Canada", "Germany", "Outlying-US(Guam-USVI-etc)", "India", "Japan", "Greece", "South", "China", "Cuba", "Iran", "Honduras", "Philippines", "Italy", "Poland", "Jamaica", "Vietnam", "Mexico", "Portugal", "Ireland", "France", "Dominican-Republic", "Laos", "Ecuador", "Taiwan", "Haiti", "Columbia", "Hungary", "Guatemala", "Nicaragua", "Scotland", "Thailand", "Yugoslavia", "El-Salvador", "Trinadad&Tobago", "Peru", "Hong", "Holand-Netherlands"]


def adult():
    def rd(f):
        out = []
        for l in open(R + "adult/" + f):
            p = [s.strip().rstrip(".") for s in l.strip().split(",")]
            if len(p) == 15:
                out.append(p)
        return out

    spec = [
        ("age", 0, num, [20, 25, 30, 35, 40, 45, 50, 55, 60, 65]),
        ("workclass", 1, cat, AW),
        ("fnlwgt", 2, num, [1e5, 1.5e5, 2e5, 2.5e5, 3e5, 4e5]),
        ("education", 3, cat, AE),
        ("education-num", 4, num, list(range(2, 17))),
        ("marital", 5, cat, AM),
        ("occupation", 6, cat, AO),
        ("relationship", 7, cat, AR),
        ("race", 8, cat, AC),
        ("sex", 9, cat, ["Male", "Female"]),
        ("gain", 10, num, [1, 3000, 5000, 7000, 10000, 15000]),
        ("loss", 11, num, [1, 1600, 1800, 2000, 2300]),
        ("hours", 12, num, [20, 30, 35, 40, 41, 50, 60]),
        ("country", 13, cat, AN),
        ("income", 14, cat, ["<=50K", ">50K"]),
    ]
    a = make("adult", rd("adult.data"), spec, "income")
    b = make("adult", rd("adult.test"), spec, "income")
    return a, b.codes


def split(t, seed, frac=0.8):
    r = np.random.default_rng(seed)
    p = r.permutation(len(t.codes))
    k = round(len(p) * frac)
    import dataclasses

    return dataclasses.replace(t, codes=t.codes[p[:k]]), t.codes[p[k:]]


def diabetes():
    z = zipfile.ZipFile(R + "diabetes_130_hospitals/dataset_diabetes.zip")
    n = [x for x in z.namelist() if x.endswith("diabetic_data.csv")][0]
    rd = csv.reader(io.TextIOWrapper(z.open(n)))
    h = next(rd)
    rows = []
    seen = set()
    pi = h.index("patient_nbr")
    allr = list(rd)
    allr.sort(key=lambda r: int(r[0]))
    for r in allr:
        if r[pi] in seen:
            continue
        seen.add(r[pi])
        rows.append(["Yes" if x != "NO" and h[i] == "readmitted" else x for i, x in enumerate(r)])
    med = ["No", "Steady", "Up", "Down"]
    icd = []
    G = "diab,neo,circ,resp,dig,gu,musc,inj,oth"

    def grp(s):
        if s in ("?", ""):
            return "?"
        if s[0] in "EV":
            return "oth"
        v = float(s)
        if int(v) == 250:
            return "diab"
        for a, b, g in (
            (1, 139, "inf"),
            (140, 239, "neo"),
            (240, 279, "endo"),
            (280, 289, "blood"),
            (290, 319, "ment"),
            (320, 389, "nerv"),
            (390, 459, "circ"),
            (460, 519, "resp"),
            (520, 579, "dig"),
            (580, 629, "gu"),
            (630, 679, "preg"),
            (680, 709, "skin"),
            (710, 739, "musc"),
            (740, 779, "cong"),
            (780, 799, "sympt"),
            (800, 999, "inj"),
        ):
            if a <= v < b + 1:
                return g if g in G else "oth"
        return "x"

    G = ["diab", "neo", "circ", "resp", "dig", "gu", "musc", "inj", "oth"]
    for r in rows:
        for d in ("diag_1", "diag_2", "diag_3"):
            r[h.index(d)] = grp(r[h.index(d)])
    S = ["InternalMedicine", "Emergency/Trauma", "Family/GeneralPractice", "Cardiology", "Surgery-General"]
    q = [
        ("race", cat, ["Caucasian", "AfricanAmerican", "Hispanic", "Asian", "Other"]),
        ("gender", cat, ["Male", "Female"]),
        ("age", cat, ["[%d-%d)" % (10 * i, 10 * i + 10) for i in range(10)]),
        ("admission_type_id", cat, [str(i) for i in range(1, 9)]),
        ("admission_source_id", cat, [str(i) for i in (1, 2, 3, 4, 5, 6, 7, 9, 17, 20)]),
        ("time_in_hospital", num, list(range(2, 15))),
        ("medical_specialty", cat, S),
        ("num_lab_procedures", num, list(range(10, 100, 10))),
        ("num_procedures", num, list(range(1, 7))),
        ("num_medications", num, [5, 8, 10, 12, 14, 16, 18, 20, 22, 25, 30, 40]),
        ("number_outpatient", num, [1, 2, 3, 5, 10]),
        ("number_emergency", num, [1, 2, 3, 5]),
        ("number_inpatient", num, [1, 2, 3, 4, 6]),
        ("diag_1", cat, G),
        ("number_diagnoses", num, list(range(2, 11))),
        ("max_glu_serum", cat, ["None", "Norm", ">200", ">300"]),
        ("A1Cresult", cat, ["None", "Norm", ">7", ">8"]),
        ("metformin", cat, med),
        ("glipizide", cat, med),
        ("glyburide", cat, med),
        ("pioglitazone", cat, med),
        ("rosiglitazone", cat, med),
        ("insulin", cat, med),
        ("change", cat, ["No", "Ch"]),
        ("diabetesMed", cat, ["No", "Yes"]),
        ("readmitted", cat, ["NO", "Yes"]),
    ]
    return make("diabetes", rows, [(n, h.index(n), k, a) for n, k, a in q], "readmitted")


def heart():
    rows = []
    for f in ("cleveland", "hungarian", "switzerland", "va"):
        for l in open(R + f"heart_disease_4_hospitals/processed.{f}.data"):
            p = [s.strip() for s in l.strip().split(",")]
            if len(p) == 14:
                p = [s if s == "?" else str(float(s)) for s in p]
                p[13] = "1" if float(p[13]) > 0 else "0"
                rows.append(p)
    c = lambda *a: [str(float(x)) for x in a]
    return make(
        "heart",
        rows,
        [
            ("age", 0, num, [40, 45, 50, 55, 60, 65]),
            ("sex", 1, cat, c(0, 1)),
            ("cp", 2, cat, c(1, 2, 3, 4)),
            ("trestbps", 3, num, [110, 120, 130, 140, 150, 160]),
            ("chol", 4, num, [1, 200, 240, 280, 320]),
            ("fbs", 5, cat, c(0, 1)),
            ("restecg", 6, cat, c(0, 1, 2)),
            ("thalach", 7, num, [100, 120, 140, 160]),
            ("exang", 8, cat, c(0, 1)),
            ("oldpeak", 9, num, [0.1, 1, 2, 3]),
            ("slope", 10, cat, c(1, 2, 3)),
            ("ca", 11, cat, c(0, 1, 2, 3)),
            ("thal", 12, cat, c(3, 6, 7)),
            ("num", 13, cat, ["0", "1"]),
        ],
        "num",
    )


def abalone():
    rows = [l.strip().split(",") for l in open(R + "abalone/abalone.data")]
    for r in rows:
        r[8] = "1" if int(r[8]) >= 10 else "0"
    f = lambda lo, hi, k: list(np.linspace(lo, hi, k).round(4))
    return make(
        "abalone",
        rows,
        [
            ("sex", 0, cat, ["M", "F", "I"]),
            ("length", 1, num, f(0.2, 0.75, 12)),
            ("diameter", 2, num, f(0.15, 0.6, 12)),
            ("height", 3, num, f(0.05, 0.2, 12)),
            ("whole", 4, num, f(0.2, 2, 12)),
            ("shucked", 5, num, f(0.1, 0.9, 12)),
            ("viscera", 6, num, f(0.05, 0.45, 12)),
            ("shell", 7, num, f(0.05, 0.6, 12)),
            ("old", 8, cat, ["0", "1"]),
        ],
        "old",
    )


def wdbc():
    rows = [l.strip().split(",") for l in open(R + "breast_cancer_wdbc/wdbc.data")]
    hi = [
        28,
        40,
        190,
        2000,
        0.16,
        0.35,
        0.43,
        0.2,
        0.3,
        0.1,
        2.5,
        4,
        20,
        200,
        0.02,
        0.12,
        0.15,
        0.05,
        0.07,
        0.02,
        36,
        50,
        250,
        3000,
        0.22,
        1,
        1.2,
        0.3,
        0.6,
        0.2,
    ]
    lo = [
        7,
        10,
        45,
        150,
        0.05,
        0.02,
        0,
        0,
        0.1,
        0.05,
        0.1,
        0.4,
        0.8,
        7,
        0,
        0,
        0,
        0,
        0,
        0,
        8,
        12,
        50,
        180,
        0.07,
        0.02,
        0,
        0,
        0.15,
        0.05,
    ]
    return make(
        "wdbc",
        rows,
        [(f"f{i}", i + 2, num, list(np.linspace(lo[i], hi[i], 9))) for i in range(30)] + [("diag", 1, cat, ["B", "M"])],
        "diag",
    )


def eicu():
    def rd(f):
        return list(csv.DictReader(io.TextIOWrapper(gzip.open(R + "eicu_demo/" + f + ".csv.gz"))))

    P = {r["patientunitstayid"]: r for r in rd("patient")}
    V = rd("apacheapsvar")
    H = {r["hospitalid"]: r for r in rd("hospital")}
    Q = {r["patientunitstayid"]: r for r in rd("apachepredvar")}
    rows = []
    seen = set()
    for v in V:
        p = P.get(v["patientunitstayid"])
        if (
            p is None
            or p["hospitaldischargestatus"] not in ("Alive", "Expired")
            or p.get("uniquepid", v["patientunitstayid"]) in seen
        ):
            continue
        seen.add(p.get("uniquepid", v["patientunitstayid"]))
        m = lambda s: "" if s in ("-1", "-1.0") else s
        h = H[p["hospitalid"]]
        a = p["age"]
        a = "90" if ">" in a else a
        rows.append(
            [a, p["gender"], p["unittype"], h.get("region", ""), p["unitadmitsource"]]
            + [
                m(v[k])
                for k in (
                    "eyes",
                    "motor",
                    "verbal",
                    "temperature",
                    "respiratoryrate",
                    "sodium",
                    "heartrate",
                    "meanbp",
                    "creatinine",
                    "albumin",
                    "glucose",
                    "wbc",
                    "bun",
                    "intubated",
                    "vent",
                )
            ]
            + [p["hospitaldischargestatus"]]
        )
    u = ["Med-Surg ICU", "MICU", "SICU", "Cardiac ICU", "CCU-CTICU", "CTICU", "CSICU", "Neuro ICU"]
    s = [
        ("age", 0, num, list(range(20, 95, 5))),
        ("gender", 1, cat, ["Male", "Female"]),
        ("unit", 2, cat, u),
        ("region", 3, cat, ["Midwest", "South", "West", "Northeast"]),
        (
            "source",
            4,
            cat,
            [
                "Emergency Department",
                "Floor",
                "Operating Room",
                "Direct Admit",
                "Recovery Room",
                "Other Hospital",
                "Other ICU",
            ],
        ),
        ("eyes", 5, num, [2, 3, 4]),
        ("motor", 6, num, [2, 3, 4, 5, 6]),
        ("verbal", 7, num, [2, 3, 4, 5]),
        ("temp", 8, num, [35, 36, 36.5, 37, 37.5, 38, 39]),
        ("rr", 9, num, [8, 12, 16, 20, 25, 30, 35, 40]),
        ("na", 10, num, [125, 130, 135, 138, 141, 145, 150]),
        ("hr", 11, num, [50, 60, 70, 80, 90, 100, 110, 120, 140]),
        ("mbp", 12, num, [40, 50, 60, 70, 80, 100, 120, 140]),
        ("creat", 13, num, [0.6, 0.8, 1, 1.3, 1.6, 2, 3, 4]),
        ("alb", 14, num, [2, 2.5, 3, 3.5, 4]),
        ("glu", 15, num, [80, 100, 120, 140, 170, 200, 250, 300]),
        ("wbc", 16, num, [4, 7, 10, 12, 15, 20, 25]),
        ("bun", 17, num, [10, 15, 20, 25, 35, 50, 70]),
        ("intub", 18, cat, ["0", "1"]),
        ("vent", 19, cat, ["0", "1"]),
        ("died", 20, cat, ["Alive", "Expired"]),
    ]
    return make("eicu", rows, s, "died")
