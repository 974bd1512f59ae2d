import numpy as np
import pyarrow as pa
import pytest

from puncta.errors import ColumnError
from puncta.indexing._vendors import VENDORS, is_control, match_columns, recognise, transcript_files

XENIUM = ["transcript_id", "cell_id", "feature_name", "x_location", "y_location", "z_location", "qv"]
MERSCOPE = ["index", "barcode_id", "global_x", "global_y", "global_z", "x", "y", "fov", "gene", "transcript_id"]
COSMX = ["fov", "cell_ID", "x_local_px", "y_local_px", "x_global_px", "y_global_px", "z", "target", "CellComp"]
G4X = ["y_pixel_coordinate", "x_pixel_coordinate", "z_level", "gene_name", "confidence_score", "cell_id"]


@pytest.mark.parametrize(
    ("names", "vendor", "columns"),
    [
        (XENIUM, "xenium", ("x_location", "y_location", "z_location", "feature_name", "cell_id")),
        (MERSCOPE, "merscope", ("global_x", "global_y", "global_z", "gene", None)),
        ([*MERSCOPE, "cell_id"], "merscope", ("global_x", "global_y", "global_z", "gene", "cell_id")),
        ([*MERSCOPE, "EntityID"], "merscope", ("global_x", "global_y", "global_z", "gene", "EntityID")),
        (COSMX, "cosmx", ("x_global_px", "y_global_px", "z", "target", "cell_ID")),
        (G4X, "g4x", ("x_pixel_coordinate", "y_pixel_coordinate", "z_level", "gene_name", "cell_id")),
        (["x", "y", "z", "xc", "yc", "zc", "target"], "starfish", ("xc", "yc", "zc", "target", None)),
        (["x", "y", "name", "cell"], "seqfish", ("x", "y", None, "name", "cell")),
        (["x", "y", "feature_name", "fov"], "iss", ("x", "y", None, "feature_name", None)),
    ],
)
def test_each_vendor_is_recognised_by_its_columns(
    names: list[str], vendor: str, columns: tuple[str | None, ...]
) -> None:
    found = recognise(names)
    assert found is not None
    assert found.name == vendor
    matched = match_columns(names, vendor=found)
    assert (matched.x, matched.y, matched.z, matched.features[0], matched.cell) == columns


def test_columns_of_no_vendor_are_recognised_as_none() -> None:
    assert recognise(["x", "y", "gene"]) is None


def test_usual_names_serve_in_any_case_where_no_vendor_is_known() -> None:
    columns = match_columns(["X", "Y", "Gene", "score"])
    assert (columns.coordinates, columns.features) == (("X", "Y"), ("Gene",))


def test_the_callers_columns_win_over_the_vendors() -> None:
    columns = match_columns(MERSCOPE, x="x", y="y", feature_keys=["transcript_id", "gene"], vendor=recognise(MERSCOPE))
    assert (columns.x, columns.y, columns.features) == ("x", "y", ("transcript_id", "gene"))


def test_a_missing_column_is_named_with_the_nearest_and_all_there_are() -> None:
    with pytest.raises(ColumnError, match=r"no column 'x_locaton'; nearest: 'x_location'.*transcript_id, cell_id.*--x"):
        match_columns(XENIUM, x="x_locaton")


def test_a_table_without_features_says_which_option_names_them() -> None:
    with pytest.raises(ColumnError, match=r"the 2 columns are x, y; .*--feature-key"):
        match_columns(["x", "y"])


def test_a_wide_table_is_not_listed_whole() -> None:
    with pytest.raises(ColumnError, match=r"c29 and 70 more"):
        match_columns([f"c{i}" for i in range(100)])


def test_repeated_column_names_are_refused() -> None:
    with pytest.raises(ColumnError, match=r"1 column names .*first: 'x', 2 times"):
        match_columns(["x", "y", "x", "gene"])


def test_one_column_cannot_have_two_roles() -> None:
    with pytest.raises(ColumnError, match="'x' is given two roles"):
        match_columns(["x", "y", "gene"], y="x")


@pytest.mark.parametrize(
    ("vendor", "controls", "genes"),
    [
        (
            "xenium",
            [
                "NegControlProbe_00042",
                "NegControlCodeword_0500",
                "BLANK_0006",
                "UnassignedCodeword_0001",
                "DeprecatedCodeword_0001",
                "antisense_TRMU",
                "Intergenic_Region_1",
            ],
            ["ACE", "BLNK", "NEGR1", "C16orf89"],
        ),
        ("merscope", ["Blank-1", "Blank-37"], ["Comt", "Blnk"]),
        ("cosmx", ["Negative1", "NegPrb12", "SystemControl5", "FalseCode3"], ["Gfap", "NEGR1", "SYS1"]),
        ("iss", [], ["Plp1", "Blank-1"]),
    ],
)
def test_controls_are_told_from_genes_by_the_vendors_rule(vendor: str, controls: list[str], genes: list[str]) -> None:
    found = next(each for each in VENDORS if each.name == vendor)
    expected = [True] * len(controls) + [False] * len(genes)
    np.testing.assert_array_equal(is_control([*controls, *genes], found), expected)


def test_without_a_vendor_the_rules_of_all_apply_and_a_null_is_no_control() -> None:
    names = pa.array(["antisense_TRMU", "Blank-1", None, "Negative1", "Plp1"])
    np.testing.assert_array_equal(is_control(names, None), [True, True, False, True, False])


def test_no_vendors_rule_takes_an_ordinary_gene_for_a_control() -> None:
    genes = ["Negr1", "Blank1", "BLNK", "SYSTEMIN", "FALZ", "NEGATIVE"]
    assert not is_control(genes, None).any()


def test_of_one_table_in_two_forms_the_parquet_is_taken() -> None:
    files = ["cells.parquet", "transcripts.csv.gz", "transcripts.parquet", "transcripts.zarr.zip"]
    assert transcript_files(files) == ["transcripts.parquet"]


def test_two_tables_in_a_folder_are_both_named() -> None:
    files = ["S1_tx_file.csv.gz", "S2_tx_file.csv", "S2_exprMat_file.csv"]
    assert transcript_files(files) == ["S1_tx_file.csv.gz", "S2_tx_file.csv"]
